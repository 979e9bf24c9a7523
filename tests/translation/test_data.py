import hashlib
import io
import json
import pickle
import shutil

import numpy as np
import pytest
from torch.utils.data import DataLoader

from adasparse.translation.arrays import RaggedWriter
from adasparse.translation.data import PreparedData
from adasparse.translation.prepare import prepare

PAIRS = [
    (f"{word} {number} Hunde", f"{word} {number} dogs and cats")
    for word in "abcdefgh"
    for number in range(25)
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    path = folder / "train.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return prepare(train=[[path]], dev_size=20, out=folder / "out", vocab_size=600).folder


@pytest.fixture
def folder(source, tmp_path):
    return shutil.copytree(source, tmp_path / "data")


def test_items_are_lists_of_ids(folder):
    train = PreparedData.open(folder).train
    assert len(train) == 180
    for row in train:
        assert set(row) == {"input_ids", "labels"}
        assert row["input_ids"][-1] == row["labels"][-1] == 1
        assert type(row["labels"][0]) is int
    assert train[-1] == train[179]
    assert train[np.int64(3)] == train[3]
    with pytest.raises(IndexError):
        train[180]


def test_lengths_are_those_of_the_items(folder):
    data = PreparedData.open(folder)
    for split in (data.train, data.dev):
        assert split.source_lengths.tolist() == [len(row["input_ids"]) for row in split]
        assert split.target_lengths.tolist() == [len(row["labels"]) for row in split]
        assert split.source_lengths.dtype == split.target_lengths.dtype == np.int32


def test_a_copy_for_another_process_is_small(folder):
    train = PreparedData.open(folder).train
    assert train.source_lengths.sum() > 0
    pickled = pickle.dumps(train)
    assert len(pickled) < 1000
    assert list(pickle.loads(pickled)) == list(train)


@pytest.mark.slow
def test_workers_read_it(folder):
    train = PreparedData.open(folder).train
    loader = DataLoader(train, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    rows = [{key: list(map(int, ids)) for key, ids in row.items()} for row in loader]
    assert rows == list(train)


def test_ids_take_two_bytes_or_four(tmp_path):
    for size, dtype in ((1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)):
        with RaggedWriter(tmp_path / "x", vocab_size=size) as writer:
            writer.append([[1, size - 1], []])
            writer.append([])
            writer.append([[2]])
        ids = np.load(tmp_path / "x.ids.npy", mmap_mode="r")
        assert ids.dtype == dtype
        assert ids.tolist() == [1, size - 1, 2]
        assert np.load(tmp_path / "x.offsets.npy").tolist() == [0, 2, 2, 3]


def test_whole_data_are_verified(folder):
    PreparedData.open(folder).verify()


def test_a_changed_file_is_named(folder):
    path = folder / "train.target.ids.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"changed: train\.target\.ids\.npy\."):
        PreparedData.open(folder).verify()


def test_a_cut_file_is_noticed_at_once(folder):
    path = folder / "dev.source.txt"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"must have {size} bytes; it has {size - 1}"):
        PreparedData.open(folder)


def test_a_missing_file_is_named(folder):
    (folder / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is missing"):
        PreparedData.open(folder)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "is no prepared folder, it has no manifest.json"),
        ("{", "manifest.json is damaged"),
        ("[]", "manifest.json is of another kind"),
        ('{"format": "other"}', "manifest.json is of another kind"),
        ('{"format": "adasparse-translation", "version": 99}', "version 1; got version 99"),
    ],
)
def test_other_folders_are_refused(tmp_path, manifest, message):
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ValueError, match=message):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("files", "dev.source.offsets.npy", None),
        ("files", "tokenizer/tokenizer.json", None),
        ("languages", "source", 3.5),
        ("languages", "target", ["en"]),
    ],
)
def test_a_manifest_that_lacks_entries_is_refused(folder, part, key, value):
    """A file without a hash used not to be verified, and any value to be a language."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[part][key] = value
    if value is None:
        del manifest[part][key]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"manifest.json is damaged \(it lacks entries\)"):
        PreparedData.open(folder)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere: make one"):
        PreparedData.open(tmp_path / "nowhere")


def test_no_paths_are_in_the_manifest(folder, source):
    text = json.dumps(PreparedData.open(folder).manifest)
    assert str(source.parent) not in text


def forge(folder, name, content):
    """Replace a file, and have the manifest agree."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ids", lambda ids: ids[:10]),
        ("ids", lambda ids: ids[:0]),
        ("ids", lambda ids: ids[None]),
        ("ids", lambda ids: ids.astype(float)),
        ("ids", lambda ids: np.array(3)),
        ("ids", lambda ids: ids + 60_000),
        ("offsets", lambda offsets: offsets[::-1]),
        ("offsets", lambda offsets: -offsets),
        ("offsets", lambda offsets: offsets[:-5]),
        ("offsets", lambda offsets: offsets[:0]),
        ("offsets", lambda offsets: offsets * 0),
        ("offsets", lambda offsets: offsets.astype(float)),
    ],
)
def test_arrays_that_cannot_be_pairs_are_refused(folder, kind, change):
    """Even if the manifest has their hashes: training used to end in a traceback, or not at all."""
    name = f"train.source.{kind}.npy"
    forge(folder, name, npy(change(np.load(folder / name))))
    with pytest.raises(ValueError, match=r"^The train data in .* are damaged: prepare the data"):
        PreparedData.open(folder).verify()


@pytest.mark.parametrize("content", [b"", b"eins\n", "fünf\n".encode("latin1") * 20])
def test_a_development_text_that_does_not_fit_is_refused(folder, content):
    forge(folder, "dev.source.txt", content)
    data = PreparedData.open(folder)
    for read in (data.verify, lambda: data.dev_source):
        with pytest.raises(ValueError, match=r"^The dev data in .* are damaged: prepare the data"):
            read()
