import gzip
import hashlib
import json
import os
import threading

import pytest

from adasparse.translation.corpus import ParallelText, TextFile, language_of


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path):
    return list(TextFile(path).lines())


@pytest.mark.parametrize("name", ["a.de", "a.de.gz", "plain.gz.de"])
def test_lines_are_those_of_the_file(tmp_path, name):
    assert read(write(tmp_path / name, "eins\nzwei\n\nvier")) == ["eins", "zwei", "", "vier"]


def test_compression_is_known_by_content(tmp_path):
    path = tmp_path / "a.de"
    path.write_bytes(gzip.compress(b"eins\n"))
    assert read(path) == ["eins"]


def test_several_gzip_members_are_one_text(tmp_path):
    path = tmp_path / "a.de.gz"
    path.write_bytes(gzip.compress(b"eins\nzw") + gzip.compress(b"ei\n"))
    assert read(path) == ["eins", "zwei"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\x1c", "\r"])
def test_only_a_newline_ends_a_line(tmp_path, separator):
    text = f"a{separator}b"
    assert read(write(tmp_path / "a", f"{text}\nc\n")) == [text, "c"]


def test_carriage_returns_and_byte_order_mark_are_no_text(tmp_path):
    assert read(write(tmp_path / "a", "\ufeffeins\r\nzwei\r\n\ufeffdrei")) == [
        "eins",
        "zwei",
        "\ufeffdrei",
    ]


def test_a_line_of_a_megabyte_is_a_line(tmp_path):
    assert read(write(tmp_path / "a", "x" * 2**20 + "\ny\n")) == ["x" * 2**20, "y"]


def test_hash_is_that_of_the_bytes_on_disk(tmp_path):
    path = write(tmp_path / "a.gz", "eins\n" * 100_000)
    file = TextFile(path)
    assert len(list(file.lines())) == file.num_lines == 100_000
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_pipe_can_be_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"eins\nzwei\n"))
    writer.start()
    assert read(pipe) == ["eins", "zwei"]
    writer.join()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"gut\nsch\xf6n\n", r"a must be UTF-8; line 2 is not, at its byte 4 \(0xf6"),
        (b"\xff\xfea\0", "line 1 has a NUL byte"),
        (b"a\nb\0c\n", "line 2 has a NUL byte"),
        (b"\xed\xa0\x80\n", "line 1 is not, at its byte 1"),
        (b"", "a must have text; it is empty"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "a", content))


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_gzip_is_refused(tmp_path, damage):
    data = bytearray(gzip.compress(os.urandom(1000).hex().encode()))
    if damage == "cut":
        del data[-100:]
    else:
        data[len(data) // 2] ^= 255
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.gz must be a whole gzip file"):
        read(path)


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere"):
        TextFile(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        TextFile(tmp_path)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("train.de", "de"),
        ("train.de.gz", "de"),
        ("x.tags.de-en.en", "en"),
        ("a.pt_BR", "pt_BR"),
        ("a.zh-Hans.gz", "zh-Hans"),
        ("a.txt", None),
        ("german", None),
        ("a.corpus", None),
    ],
)
def test_language_is_the_ending(tmp_path, name, language):
    assert language_of(tmp_path / name) == language


def pairs(*paths, **keys):
    return list(ParallelText(paths, **keys).pairs())


def test_aligned_files_give_pairs(tmp_path):
    source, target = write(tmp_path / "a.de", "eins\nzwei\n"), write(tmp_path / "a.en", "one\ntwo")
    text = ParallelText([source, target])
    assert list(text.pairs()) == [("eins", "one"), ("zwei", "two")]
    assert text.languages() == ("de", "en")
    assert [(row["name"], row["lines"]) for row in text.describe()] == [("a.de", 2), ("a.en", 2)]


@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3), (1, 10_000)])
def test_different_line_counts_are_both_named(tmp_path, first, second):
    paths = write(tmp_path / "a.de", "x\n" * first), write(tmp_path / "a.en", "y\n" * second)
    with pytest.raises(ValueError, match=f"same number of lines; got {first} and {second}"):
        pairs(*paths)


def test_a_blank_side_is_refused(tmp_path):
    paths = write(tmp_path / "a.de", "eins\nzwei\n"), write(tmp_path / "a.en", "\n \t\n")
    with pytest.raises(ValueError, match=r"target side must have text; .*a\.en is blank"):
        pairs(*paths)


def test_the_same_file_twice_is_refused(tmp_path):
    path = write(tmp_path / "a.de", "x\n")
    (tmp_path / "link.en").symlink_to(path)
    for other in (path, tmp_path / "link.en"):
        with pytest.raises(ValueError, match="must be two files; both are"):
            ParallelText([path, other])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_two_files_or_one_of_pairs_are_needed(tmp_path, count):
    path = write(tmp_path / "a.txt", "x\n")
    with pytest.raises(ValueError, match=r"two files .* or from one file that ends in \.tsv"):
        ParallelText([path] * count)


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_gives_pairs(tmp_path, name):
    path = write(tmp_path / name, "eins\tone\r\n\nzwei\ttwo\n")
    assert pairs(path) == [("eins", "one"), ("zwei", "two")]


@pytest.mark.parametrize(("row", "count"), [("zwei", 1), ("a\tb\tc", 3)])
def test_tsv_has_two_columns(tmp_path, row, count):
    with pytest.raises(ValueError, match=rf"a\.tsv, line 2: .* it has {count} columns"):
        pairs(write(tmp_path / "a.tsv", f"eins\tone\n{row}\n"))


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("keys", [("source", "target"), ("de", "en")])
def test_jsonl_gives_pairs(tmp_path, keys, is_nested):
    rows = [dict(zip(keys, row, strict=True)) for row in (("ein\ns", "one"), ("zwei", "two"))]
    lines = [json.dumps({"translation": row} if is_nested else row) for row in rows]
    path = write(tmp_path / "a.jsonl", "\n".join(lines) + "\n\n")
    text = ParallelText([path], source_key=keys[0], target_key=keys[1])
    assert list(text.pairs()) == [("ein s", "one"), ("zwei", "two")]
    assert text.languages() == (None if keys[0] == "source" else keys)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be a JSON object"),
        ("[]", "must have text under 'source'; it has no object"),
        ('{"de": "x", "en": "y"}', "under 'source'; it has the keys de, en"),
        ('{"source": 1, "target": "y"}', "must have text under 'source'"),
        ('{"source": "\\ud800", "target": "y"}', "half a surrogate pair"),
    ],
)
def test_wrong_jsonl_is_refused_with_its_line(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", f'{{"source": "x", "target": "y"}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2: .*{message}"):
        pairs(path)
