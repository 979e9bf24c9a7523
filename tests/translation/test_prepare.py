import gzip
import hashlib
import json
import os
import random
import signal
from pathlib import Path

import pytest

from adasparse.translation.data import PreparedData
from adasparse.translation.filters import REASONS, Filters
from adasparse.translation.prepare import prepare
from adasparse.translation.staging import staged

NOUNS = {"Hund": "dog", "Haus": "house", "Baum": "tree", "Vogel": "bird", "Berg": "mountain"}
ADJECTIVES = {"klein": "small", "grün": "green", "alt": "old", "schön": "beautiful"}


def sentences(count, seed=0):
    """Different pairs of sentences that are word for word translations."""
    draw = random.Random(seed)
    pairs = {}
    while len(pairs) < count:
        words = [draw.choice(list((NOUNS | ADJECTIVES).items())) for _ in range(draw.randint(3, 9))]
        source, target = (" ".join(side) for side in zip(*words, strict=True))
        pairs[f"Ein {source}."] = f"A {target}."
    return list(pairs.items())


def write(folder, name, pairs):
    paths = [folder / f"{name}.{lang}" for lang in ("de", "en")]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_bytes("".join(f"{text}\n" for text in side).encode())
    return paths


def tokens_of(split, tokenizer):
    return [
        tuple(
            tokenizer.decode(row[key], skip_special_tokens=True) for key in ("input_ids", "labels")
        )
        for row in split
    ]


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run(folder, train, dev, **settings):
    settings = {"vocab_size": 600, **settings}
    return prepare(
        train=[write(folder, "train", train)],
        dev=write(folder, "dev", dev),
        out=folder / "out",
        **settings,
    )


TRAIN, DEV = sentences(300), sentences(20, seed=1)


def test_every_pair_is_there_in_order(tmp_path):
    train = [pair for pair in TRAIN if pair not in DEV]
    data = run(tmp_path, train, DEV)
    assert tokens_of(data.train, data.tokenizer) == train
    assert tokens_of(data.dev, data.tokenizer) == DEV
    assert (data.dev_source, data.dev_target) == tuple(map(list, zip(*DEV, strict=True)))
    assert (data.source_lang, data.target_lang) == ("de", "en")


def test_account_adds_up(tmp_path):
    long = "Berg " * 300
    dropped = {
        "empty": [("", "x"), ("x", " \t"), ("\x01", "y")],
        "too_many_characters": [("x" * 2001, "y")] * 2,
        "in_dev": [DEV[0], (f"  {DEV[1][0]} ", DEV[1][1])],
        "duplicate": [TRAIN[0], (TRAIN[1][0].replace(" ", "  "), TRAIN[1][1])],
        "too_few_tokens": [],
        "too_many_tokens": [(long, long)],
        "length_ratio": [("Hund", "Hund " * 30)],
    }
    kept = [pair for pair in TRAIN if pair not in DEV]
    sided = [(DEV[2][0], "Something else."), ("Etwas anderes.", DEV[3][1])]
    everything = [*kept, *sided, *(pair for pairs in dropped.values() for pair in pairs)]
    train = run(tmp_path, everything, DEV).manifest["train"]
    assert train["dropped"] == {reason: len(dropped[reason]) for reason in REASONS}
    assert train["read"] == len(everything)
    assert train["pairs"] == len(kept) + 2
    assert (train["source_in_dev"], train["target_in_dev"]) == (1, 1)


def test_filters_can_be_off(tmp_path):
    odd = [("x" * 3000, "y"), TRAIN[0], ("a  b\t\x01", "c")]
    filters = Filters(max_chars=None, max_tokens=None, max_ratio=None)
    data = run(tmp_path, TRAIN[:50] + odd, DEV, filters=filters, deduplicate=False, normalize=False)
    assert tokens_of(data.train, data.tokenizer)[-3:] == odd
    assert (
        sum(data.manifest["train"]["dropped"].values())
        == data.manifest["train"]["dropped"]["in_dev"]
    )


def test_dev_is_never_filtered(tmp_path):
    dev = [
        *DEV,
        DEV[0],
        ("", "Something."),
        ("Berg " * 400, "x"),
        ("  zwei  Leerzeichen\u2028", "y "),
    ]
    data = run(tmp_path, TRAIN, dev)
    assert len(data.dev) == len(dev)
    assert list(zip(data.dev_source, data.dev_target, strict=True)) == dev
    assert data.manifest["dev"]["blank"] == 1
    assert data.dev[len(dev) - 3]["input_ids"] == [1]


def test_the_same_input_gives_the_same_bytes(tmp_path):
    train, dev = write(tmp_path, "train", TRAIN), write(tmp_path, "dev", DEV)
    folders = tmp_path / "first", tmp_path / "elsewhere" / "second"
    for folder in folders:
        prepare(train=[train], dev=dev, out=folder, vocab_size=600)
    assert snapshot(folders[0]) == snapshot(folders[1])


def test_manifest_has_hashes_of_inputs_and_files(tmp_path):
    data = run(tmp_path, TRAIN, DEV, seed=7)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest == data.manifest
    for name, content in snapshot(tmp_path / "out").items():
        if name != "manifest.json":
            digest = hashlib.sha256(content).hexdigest()
            assert manifest["files"][name] == {"bytes": len(content), "sha256": digest}
    (inputs,) = manifest["inputs"]["train"]
    assert [(row["name"], row["lines"]) for row in inputs] == [("train.de", 300), ("train.en", 300)]
    content = (tmp_path / "train.de").read_bytes()
    assert inputs[0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["settings"]["seed"] == 7
    assert "work.txt" not in manifest["files"]


def test_formats_may_be_mixed(tmp_path):
    files = write(tmp_path, "train", TRAIN[:100])
    tsv, jsonl = tmp_path / "more.tsv.gz", tmp_path / "more.jsonl"
    tsv.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in TRAIN[100:200]).encode()))
    rows = [{"translation": {"de": source, "en": target}} for source, target in TRAIN[200:]]
    jsonl.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = prepare(
        train=[files, [tsv], [jsonl]],
        dev_size=10,
        out=tmp_path / "out",
        source_lang="de",
        target_lang="en",
        vocab_size=600,
    )
    assert len(data.train) == 290
    assert set(tokens_of(data.train, data.tokenizer)) | set(
        zip(data.dev_source, data.dev_target, strict=True)
    ) == set(TRAIN)


def test_dev_is_split_off_by_seed(tmp_path):
    files = write(tmp_path, "train", TRAIN + TRAIN)
    found = [
        prepare(train=[files], dev_size=30, seed=seed, out=tmp_path / str(index), vocab_size=600)
        for index, seed in enumerate((1, 1, 2))
    ]
    first, again, other = (data.dev_source for data in found)
    assert first == again != other
    assert len(first) == len(set(first)) == 30
    data = found[0]
    pairs = set(tokens_of(data.train, data.tokenizer))
    assert len(data.train) == len(pairs) == 270
    assert not pairs & set(tokens_of(data.dev, data.tokenizer))
    assert data.manifest["dev"]["split_off"]


def test_without_deduplication_no_copy_of_dev_stays(tmp_path):
    files = write(tmp_path, "train", TRAIN * 2)
    data = prepare(
        train=[files], dev_size=30, out=tmp_path / "out", vocab_size=600, deduplicate=False
    )
    assert len(data.train) + data.manifest["train"]["dropped"]["in_dev"] == 570
    assert not set(tokens_of(data.train, data.tokenizer)) & set(tokens_of(data.dev, data.tokenizer))


def test_the_tokenizer_learns_from_a_sample(tmp_path):
    marked = [(f"{s} Zebra" if row % 3 else s, t) for row, (s, t) in enumerate(TRAIN)]
    data = run(tmp_path, marked, DEV, tokenizer_pairs=100)
    assert data.manifest["tokenizer"]["pairs"] <= 100
    assert "▁Zebra" not in data.tokenizer.get_vocab()
    assert len(data.train) > 250


@pytest.mark.parametrize(
    ("files", "languages"),
    [(("a.de", "a.en"), ("de", "en")), (("a.txt", "b.txt"), ("src", "tgt"))],
)
def test_languages_come_from_names(tmp_path, files, languages):
    paths = [tmp_path / name for name in files]
    for path, side in zip(paths, zip(*TRAIN[:40], strict=True), strict=True):
        path.write_text("\n".join(side))
    data = prepare(train=[paths], dev_size=5, out=tmp_path / "out", vocab_size=600)
    assert (data.source_lang, data.target_lang) == languages


def test_swapped_dev_files_are_noticed(tmp_path):
    train, dev = write(tmp_path, "train", TRAIN), write(tmp_path, "dev", DEV)
    with pytest.raises(ValueError, match=r"de → en in .*train\.de.*; en → de in .*dev\.en"):
        prepare(train=[train], dev=dev[::-1], out=tmp_path / "out")


def test_mistakes_leave_nothing(tmp_path):
    train, dev = write(tmp_path, "train", TRAIN), write(tmp_path, "dev", DEV)
    bad, out = tmp_path / "bad.en", tmp_path / "new" / "deep" / "out"
    before = set(tmp_path.iterdir())
    for content, message in (
        (b"a\n" * 299, "got 300 and 299"),
        (b"a\n" * 150 + b"\xff\n" + b"a\n" * 149, r"bad\.en must be UTF-8; line 151"),
        (b"\n" * 300, "target side must have text"),
        (b"", r"bad\.en must have text; it is empty"),
        (b"x" * 3000 + b"\n" + b"\n" * 299, "of 300 none did .*299 empty, 1 too_many_characters"),
    ):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            prepare(train=[(train[0], bad)], dev=dev, out=out)
        bad.unlink()
        assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Dev data are needed"),
        ({"dev": ("a", "b"), "dev_size": 3}, "Dev data are needed"),
        ({"dev_size": 0}, "dev_size must be at least 1; got 0"),
        ({"dev_size": 300}, "less than the 300 training pairs .* got 300"),
        ({"dev_size": 3, "tokenizer_pairs": 0}, "tokenizer_pairs must be at least 1; got 0"),
        ({"dev_size": 3, "vocab_size": 100}, "vocab_size must be at least 518"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, settings, message):
    train = write(tmp_path, "train", TRAIN)
    with pytest.raises(ValueError, match=message):
        prepare(train=[train], out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_files_are_given_as_sequences(tmp_path):
    with pytest.raises(ValueError, match="Training data are needed"):
        prepare(train=[], dev_size=1, out=tmp_path / "out")
    with pytest.raises(TypeError, match=r"sequence of one or two; got 'train\.tsv'"):
        prepare(train=["train.tsv"], dev_size=1, out=tmp_path / "out")


def test_prepared_data_are_replaced_by_force_alone(tmp_path):
    run(tmp_path, TRAIN, DEV)
    before = snapshot(tmp_path / "out")
    with pytest.raises(FileExistsError, match="has prepared data already; use --force"):
        run(tmp_path, TRAIN[:100], DEV)
    assert snapshot(tmp_path / "out") == before
    data = run(tmp_path, TRAIN[:100], DEV, force=True)
    assert len(data.train) <= 100
    PreparedData.open(tmp_path / "out").verify()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("train.de", "train.en", "dev.de", "dev.en", "out")
    }


def test_other_files_are_never_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    precious = tmp_path / "out" / "thesis.tex"
    precious.write_text("x")
    with pytest.raises(FileExistsError, match="not written by `adasparse prepare`"):
        run(tmp_path, TRAIN, DEV, force=True)
    assert precious.read_text() == "x"
    with pytest.raises(FileExistsError, match="is a file"):
        prepare(train=[write(tmp_path, "train", TRAIN)], dev_size=1, out=precious)


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    assert len(run(tmp_path, TRAIN, DEV).dev) == len(DEV)


@pytest.mark.parametrize(
    "step", ["write_candidates", "train_tokenizer", "encode_pairs", "file_hash"]
)
def test_an_interruption_leaves_what_was_there(tmp_path, monkeypatch, step):
    run(tmp_path, TRAIN, DEV)
    before, names = snapshot(tmp_path / "out"), {path.name for path in tmp_path.iterdir()}

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"adasparse.translation.prepare.{step}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, TRAIN[:100], DEV, force=True)
    assert snapshot(tmp_path / "out") == before
    assert {path.name for path in tmp_path.iterdir()} == names


def test_relative_paths_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path(), "train", TRAIN)
    data = prepare(train=[("train.de", "train.en")], dev_size=10, out="out", vocab_size=600)
    assert len(data.train) == 290


def test_sigterm_leaves_nothing(tmp_path):
    """The partial folder used to stay."""
    before = signal.getsignal(signal.SIGTERM)

    def terminated():
        with staged(tmp_path / "a/out") as folder:
            (folder / "half").write_text("")
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as caught:
        terminated()
    assert caught.value.code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_data_that_were_being_replaced_are_recovered(tmp_path):
    """Killed between its two renames, --force used to leave the old data under a hidden name."""
    pairs = sentences(40)
    run(tmp_path, pairs[8:], pairs[:8])
    files = snapshot(tmp_path / "out")
    hidden = tmp_path / ".out.0123456789abcdef.old"
    (tmp_path / "out").rename(hidden)
    PreparedData.open(tmp_path / "out").verify()
    assert snapshot(tmp_path / "out") == files
    (tmp_path / "out").rename(hidden)
    with pytest.raises(FileExistsError, match="use --force to replace them"):
        run(tmp_path, pairs[8:], pairs[:8])
    assert snapshot(tmp_path / "out") == files
    assert not hidden.exists()


def test_every_file_is_as_readable_as_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        pairs = sentences(40)
        run(tmp_path, pairs[8:], pairs[:8])
    finally:
        os.umask(before)
    modes = {x.stat().st_mode & 0o777 for x in (tmp_path / "out").rglob("*") if x.is_file()}
    assert modes == {0o640}
