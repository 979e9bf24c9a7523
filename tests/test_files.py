"""Atomic writing and text reading."""

import gzip
import os
import stat
import threading

import pytest
import torch
from safetensors.torch import save_file

from adasparse import _files
from adasparse._files import TextFile, file_hash, in_words, write_atomically, write_with
from support.small_disk import largest_file


def test_a_file_is_written_whole(tmp_path):
    write_atomically(tmp_path / "a", "grün")
    assert (tmp_path / "a").read_bytes() == "grün".encode()
    write_atomically(tmp_path / "a", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    """A device or a pipe used to be replaced by a file, and so did a link."""
    pipe, link, target, read = (tmp_path / x for x in ("pipe", "link", "target", "read"))
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.write_bytes(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, "through")
    reader.join(20)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and read.read_text() == "through"
    link.symlink_to(target)
    for text in ("new", "newer"):
        write_atomically(link, text)
        assert link.is_symlink() and target.read_text() == text


def test_folders_are_made_only_if_asked(tmp_path):
    path = tmp_path / "b" / "a"
    with pytest.raises(FileNotFoundError):
        write_atomically(path, "x")
    write_with(path, lambda temporary: temporary.write_text("x"), make_folders=True)
    assert path.read_text() == "x"


def test_the_hash_is_sha_256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert file_hash(tmp_path / "a") == known


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_text_keeps_its_last_line_end_and_has_newlines_alone(tmp_path, compress, end):
    (tmp_path / "a").write_bytes(compress(b"\xef\xbb\xbfeins\r\n\nzwei\xe2\x80\xa8drei" + end))
    assert TextFile(tmp_path / "a").text() == "eins\n\nzwei\u2028drei" + "\n" * bool(end)
    assert list(TextFile(tmp_path / "a").lines()) == ["eins", "", "zwei\u2028drei"]


def test_an_empty_file_is_refused_unless_it_may_be(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match="must have text; it is empty"):
        TextFile(tmp_path / "a").text()
    assert list(TextFile(tmp_path / "a", may_be_empty=True).lines()) == []


@pytest.mark.parametrize("writer", ["safetensors", "python"])
def test_a_disk_that_takes_no_more_is_told_in_words(tmp_path, writer):
    """Errors of safetensors used to end in a number, those of Python to name no file."""
    path, weights = tmp_path / "a", torch.ones(1000)
    fill = {
        "safetensors": lambda x: save_file({"x": weights}, x),
        "python": lambda x: x.write_bytes(b"x" * 4000),
    }
    with largest_file(1000), pytest.raises(OSError, match="File too large") as caught:
        write_with(path, fill[writer])
    assert in_words(caught.value) == f"{path} cannot be used: File too large."
    assert os.listdir(tmp_path) == []


def test_errors_of_libraries_in_rust_have_no_number():
    error = Exception("Error while serializing: I/O error: No space left (os error 28)")
    assert in_words(error) == f"{os.strerror(28)}."
    assert in_words(ValueError("must be 2")) == "must be 2"


def test_a_pipe_that_nobody_writes_is_told(tmp_path, monkeypatch):
    """Reading it never ended."""
    monkeypatch.setattr(_files, "_PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="is a pipe; nothing opened it to write"):
        list(TextFile(tmp_path / "pipe").lines())
    assert set(threading.enumerate()) <= before
