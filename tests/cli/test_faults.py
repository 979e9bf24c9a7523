"""Damaged folders, foreign code and impossible numbers: a short message, and nothing written."""

import json
import os
import shutil

import pytest
from safetensors.torch import load_file, save_file

from support.commands import fails, invoke, snapshot
from support.small_language import held_out, language_file, language_run, text_file
from support.small_runs import recipe_file, small_data, small_run
from support.small_tasks import task_file, task_run

CODE = """
from pathlib import Path
from transformers import MarianConfig as Config, MarianMTModel as Model
from transformers import PreTrainedTokenizerFast as T
Path(__file__).with_name("marker").write_text("")
Path({marker!r}).write_text("")
"""


COMMANDS = {
    "translate": lambda run: ("translate", run),
    "analyze": lambda run: ("analyze", run, "--data", small_data(), "--out", run.parent / "x"),
    "explore": lambda run: ("explore", run, "--port", 1),
    "train": lambda run: (
        *("train", recipe_file(), f"data={small_data()}", f"output={run}", "--resume"),
    ),
    "tasks eval": lambda run: ("tasks", "eval", run, "--lengths", 5),
    "tasks heads": lambda run: (
        *("tasks", "heads", run, "--lengths", 5, "--out", run.parent / "x"),
    ),
    "tasks train": lambda run: ("tasks", "train", task_file(), f"output={run}", "--resume"),
    "lm eval": lambda run: ("lm", "eval", run, "--text", held_out()),
    "lm generate": lambda run: ("lm", "generate", run, "--prompt", "the sea"),
    "lm train": lambda run: (
        *("lm", "train", language_file(), f"data={text_file()}", f"output={run}", "--resume"),
    ),
}
RUNS = {"tasks": task_run, "lm": language_run}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_folder_never_runs(tmp_path, name, file):
    """transformers used to ask on the terminal, and a line "y" of the text answered."""
    made = RUNS.get(name.split()[0], small_run)()
    if not (made / file).is_file():
        pytest.skip("tasks have no tokenizer")
    run, marker = tmp_path / "run", tmp_path / "marker"
    shutil.copytree(made, run)
    config = json.loads((run / file).read_text())
    names = ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM", "AutoModel")
    config["auto_map"] = {
        "AutoConfig": "foreign.Config",
        "AutoTokenizer": ["foreign.T", "foreign.T"],
        **dict.fromkeys(names, "foreign.Model"),
    }
    if file == "config.json":
        config["model_type"] = "foreign"
    else:
        config["tokenizer_class"] = "ForeignTokenizer"
    (run / file).write_text(json.dumps(config))
    (run / "foreign.py").write_text(CODE.format(marker=str(marker)))
    before = snapshot(tmp_path)
    message = fails(*COMMANDS[name](run), text="y\ny\nyes\n")
    assert "names Python code of its own (auto_map), which adasparse never runs" in message
    assert not marker.exists()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", [x for x in COMMANDS if "train" not in x])
def test_a_damaged_model_is_told(tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(RUNS.get(name.split()[0], small_run)(), run)
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    before = snapshot(tmp_path)
    assert "cannot be loaded" in fails(*COMMANDS[name](run), text="zwei\n")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("change", ["config", "weights"])
def test_a_model_with_too_few_layers_is_told(tmp_path, name, change):
    """A finished training used to say that it had ended already."""
    run = tmp_path / "run"
    shutil.copytree(RUNS.get(name.split()[0], small_run)(), run)
    if change == "config":
        config = json.loads((run / "config.json").read_text())
        more = {key: 2 * x for key, x in config.items() if key.endswith("layers")}
        (run / "config.json").write_text(json.dumps(config | more))
    else:
        weights = load_file(run / "model.safetensors")
        rest = {key: x for key, x in weights.items() if "layers.0." not in key}
        assert 0 < len(rest) < len(weights)
        save_file(rest, run / "model.safetensors", metadata={"format": "pt"})
    before = snapshot(tmp_path)
    assert f"The model in {run}" in fails(*COMMANDS[name](run), text="zwei\n")
    assert snapshot(tmp_path) == before


def test_a_model_without_embeddings_is_told(tmp_path):
    """New ones used to be drawn where config.json did not name the class of the model."""
    run = tmp_path / "run"
    shutil.copytree(small_run(), run)
    weights = load_file(run / "model.safetensors")
    del weights["model.shared.weight"]
    save_file(weights, run / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((run / "config.json").read_text())
    del config["architectures"]
    (run / "config.json").write_text(json.dumps(config))
    assert "its weights are incomplete" in fails("translate", run, text="zwei\n")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300"])
def test_a_length_penalty_must_be_a_number_of_use(value):
    message = fails("translate", small_run(), "--length-penalty", value, text="zwei\n")
    assert f"length_penalty must be between -10 and 10; got {float(value)}" in message


def test_so_many_beams_are_refused():
    result = invoke("translate", small_run(), "--beam", 5000, text="zwei\n")
    assert result.exit_code == 2
    assert "less than or equal to 256" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--temperature", "1e-45"), "temperature must be 0, or between 0.001 and 1000.0; got"),
        (("--temperature", "inf"), "temperature must be 0, or between 0.001 and 1000.0; got inf"),
        (("--prompt", "sea \udc80"), r"A prompt must be Unicode text; got 'sea \udc80'"),
        (("--tokens", 10**9), "--tokens must be at most 100,000; got 1,000,000,000"),
    ],
    ids=repr,
)
def test_impossible_wishes_to_a_language_model_are_told(arguments, complaint):
    assert complaint in fails("lm", "generate", language_run(), "--prompt", "the", *arguments)


def test_a_prompt_of_hours_is_told(monkeypatch):
    """200,000 letters were read for many minutes, without a word."""
    monkeypatch.setattr("adasparse.cli.lm.generate.MOST_TOKENS", 50)
    options = ("--prompt", "x" * 200, "--tokens", 1)
    message = fails("lm", "generate", language_run(), *options)
    assert "A prompt must have at most 50 tokens; got 200" in message
    assert invoke("lm", "generate", language_run(), *options, "--force").exit_code == 0


def test_a_model_without_a_tokenizer_is_told(tmp_path):
    """It was told to install sentencepiece."""
    message = fails("analyze", task_run(), "--data", small_data(), "--out", tmp_path / "x")
    assert f"There is no tokenizer in {task_run()}" in message


def test_a_length_of_hours_is_told():
    message = fails("tasks", "eval", task_run(), "--lengths", 10**9)
    assert "--lengths must be at most 1,048,576; got 1,000,000,000" in message
    assert "about 909,494 times as long" in message
    forced = invoke("tasks", "eval", task_run(), "--lengths", 10**9, "--force")
    assert "Stopped at length 1000000000: a pass takes about" in forced.stdout


@pytest.mark.parametrize("command", ["heads", "sweep"])
def test_a_length_beyond_numbers_is_told(tmp_path, command):
    given = {"heads": task_run(), "sweep": task_file()}[command]
    message = fails("tasks", command, given, "--out", tmp_path / "x", "--lengths", 10**200)
    assert "--lengths must be at most 1,048,576; got 1" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no folder that refuses new files")
def test_attention_that_cannot_be_written_is_told():
    complaint = fails(
        "translate", small_run(), "--attention", "/proc/x.safetensors", text="ein Haus"
    )
    assert "/proc/x.safetensors" in complaint


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (("train", recipe_file), (f"data={small_data()}", "width=10000000", "heads=1")),
        (("tasks", "train", task_file), ("width=10000000", "heads=1")),
        (("lm", "train", language_file), (f"data={text_file()}", "ffn=900000000")),
    ],
    ids=["train", "tasks", "lm"],
)
@pytest.mark.parametrize("option", [(), ("--dry-run",)], ids=str)
def test_a_model_that_memory_cannot_hold_is_told(tmp_path, command, changes, option):
    *words, recipe = command
    message = fails(*words, recipe(), *changes, f"output={tmp_path / 'run'}", *option)
    assert "GiB of memory; " in message
    assert list(tmp_path.iterdir()) == []


def test_training_finds_flipped_bits_in_its_data(tmp_path):
    """Only a dry run used to compare hashes."""
    data = tmp_path / "data"
    shutil.copytree(small_data(), data)
    for name in ("train.source.ids.npy", "train.target.offsets.npy", "dev.source.txt"):
        content = (data / name).read_bytes()
        (data / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        message = fails("train", recipe_file(), f"data={data}", f"output={tmp_path / 'run'}")
        assert f"changed: {name}" in message
        assert not (tmp_path / "run").exists()
        (data / name).write_bytes(content)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "[" * 100_000, '{"format": "adasparse-translation", "version": 1}',
     '{"format": "adasparse-translation", "version": 1, "files": {"x": 1}}'],
    ids=lambda x: x[:60],
)  # fmt: skip
def test_a_damaged_manifest_is_told(tmp_path, content):
    data = tmp_path / "data"
    shutil.copytree(small_data(), data)
    (data / "manifest.json").write_text(content)
    message = fails("train", recipe_file(), f"data={data}", f"output={tmp_path / 'run'}")
    assert "make one with `adasparse prepare`" in message


def test_a_damaged_array_is_told(tmp_path):
    data = tmp_path / "data"
    shutil.copytree(small_data(), data)
    path = data / "train.source.ids.npy"
    path.write_bytes(b"\0" * path.stat().st_size)
    message = fails("train", recipe_file(), f"data={data}", f"output={tmp_path / 'run'}")
    assert "are damaged: prepare the data again" in message


def test_a_text_that_is_too_short_leaves_no_folder(tmp_path):
    """The folder used to block the next try: not empty, and of other data."""
    (tmp_path / "text").write_text("too short\n")
    where = (language_file(), f"data={tmp_path / 'text'}", f"output={tmp_path / 'run'}")
    assert "must have at least 16 tokens" in fails("lm", "train", *where)
    assert not (tmp_path / "run").exists()
    shutil.copy(held_out(), tmp_path / "text")
    assert invoke("lm", "train", *where, "max_steps=1").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "lost"), [("train", "bleu"), ("train", "average"), ("lm train", "perplexity")]
)
def test_results_without_an_entry_are_told(tmp_path, kind, lost):
    """A training that had ended used to end in a traceback when it was resumed."""
    run = tmp_path / "run"
    shutil.copytree(RUNS.get(kind.split()[0], small_run)(), run)
    results = json.loads((run / "results.json").read_text())
    if lost in results:
        results[lost] = {}
    else:
        del results["candidates"][results["model"]][lost]
    (run / "results.json").write_text(json.dumps(results))
    before = snapshot(tmp_path)
    assert "results.json is damaged" in fails(*COMMANDS[kind](run))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["train", "tasks train", "lm train"])
@pytest.mark.parametrize("option", [(), ("--dry-run",)], ids=str)
def test_damaged_results_are_told_before_anything_is_written(tmp_path, kind, option):
    """The recipe used to be rewritten first."""
    run = tmp_path / "run"
    shutil.copytree(RUNS.get(kind.split()[0], small_run)(), run)
    (run / "results.json").write_text('{"model": "last"}')
    before = snapshot(tmp_path)
    message = fails(*COMMANDS[kind](run), "keep=9", *option)
    assert "results.json is damaged" in message
    assert snapshot(tmp_path) == before


def test_a_vocabulary_that_ends_the_process_is_refused(tmp_path):
    """tokenizers reserves memory for all of it, and aborts if there is none."""
    texts = [tmp_path / "a.de", tmp_path / "a.en"]
    for path in texts:
        path.write_text("eins\nzwei\n")
    where = ("--train", *texts, "--dev-size", 1, "--out", tmp_path / "data")
    message = fails("prepare", *where, "--vocab-size", 10**12)
    assert "vocab_size must be at most 1,000,000; got 1000000000000" in message
    where = (language_file(), f"data={text_file()}", f"output={tmp_path / 'run'}")
    message = fails("lm", "train", *where, f"vocab_size={10**9}")
    assert "vocab_size must be at most 1,000,000; got 1000000000" in message
    assert sorted(tmp_path.iterdir()) == texts


@pytest.mark.parametrize("target", ["nowhere", "data"])
def test_a_link_to_nothing_is_told_before_the_data_are_read(tmp_path, target):
    """It used to be found when the work was done."""
    (tmp_path / "data").symlink_to(target)
    where = ("--train", *(text_file(), held_out()), "--dev-size", 1, "--out", tmp_path / "data")
    message = fails("prepare", *where)
    assert f"The output must be a folder; {tmp_path / 'data'} is a link to nothing." in message


def test_deeply_nested_pairs_are_told(tmp_path):
    (tmp_path / "a.jsonl").write_text("[" * 100_000)
    message = fails(
        *("prepare", "--train", tmp_path / "a.jsonl", "--dev-size", 1, "--out", tmp_path / "data")
    )
    assert "a.jsonl, line 1: must be a JSON object" in message


def test_an_output_with_a_deeply_nested_manifest_is_kept(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/manifest.json").write_text("[" * 100_000)
    where = ("--train", *(text_file(), held_out()), "--dev-size", 1, "--out", tmp_path / "data")
    assert "were not written by `adasparse prepare`" in fails("prepare", *where, "--force")


@pytest.mark.parametrize("name", ["train.npy", "dev.npy"])
def test_flipped_bits_in_the_tokens_of_a_text_are_told(tmp_path, name):
    """A resumed training must not use them."""
    run = tmp_path / "run"
    shutil.copytree(language_run(), run)
    content = (run / "tokens" / name).read_bytes()
    (run / "tokens" / name).write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    before = snapshot(tmp_path)
    assert "tokens are damaged: remove" in fails(*COMMANDS["lm train"](run), "max_steps=9").replace(
        f"tokens in {run / 'tokens'}", "tokens"
    )
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [None]},
        {"scores": 7},
        {"attention": {}},
        {"train_length": "x"},
        {"train_length": 10**30},
        {"stopped": []},
        {"scores": [{"length": 5}]},
    ],
    ids=str,
)
def test_a_damaged_evaluation_is_told(tmp_path, change):
    """It used to end in a traceback."""
    where = tmp_path / "copy-asentmax-adaptive-nape-3"
    shutil.copytree(task_run(), where)
    evaluated = invoke("tasks", "eval", where, "--lengths", 5, "--json")
    (where / "eval.json").write_text(json.dumps(json.loads(evaluated.stdout) | change))
    assert "eval.json is damaged" in fails("tasks", "plot", tmp_path, "--out", tmp_path / "x.svg")
    assert not list(tmp_path.glob("x*"))
    swept = invoke("tasks", "sweep", task_file(), "--out", tmp_path, "--lengths", 5)
    assert swept.exit_code == 1
    assert "eval.json is damaged" in swept.stderr


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (("tasks", "train", task_file), ("max_length=500000000",)),
        (("lm", "train", language_file), (f"data={text_file()}", "context=500000000")),
    ],
    ids=["tasks", "lm"],
)
def test_a_batch_that_memory_cannot_hold_is_told(tmp_path, command, changes):
    """A dry run used to build it."""
    *words, recipe = command
    message = fails(*words, recipe(), *changes, f"output={tmp_path / 'run'}", "--dry-run")
    assert "GiB of memory; " in message


def test_benchmarks_tell_of_a_run_of_another_kind():
    """It used to end in a traceback."""
    message = fails("bench", "decode", "--run", small_run(), "--case", "trained", "--quick")
    assert "The run must be one of 'adasparse tasks train'" in message


def test_a_text_that_is_shorter_than_all_lengths_is_told(tmp_path):
    """An evaluation without a number used to replace the one before."""
    (tmp_path / "text").write_text("the sea\n")
    run = tmp_path / "run"
    shutil.copytree(language_run(), run)
    (run / "eval.json").write_text("{}")
    message = fails("lm", "eval", run, "--text", tmp_path / "text", "--lengths", "64,128")
    assert "The text must have at least 64 tokens" in message
    assert (run / "eval.json").read_text() == "{}"


def test_a_perplexity_beyond_numbers_is_infinite(tmp_path):
    """It used to end in an OverflowError."""
    run = tmp_path / "run"
    shutil.copytree(language_run(), run)
    weights = load_file(run / "model.safetensors")
    weights["model.norm.weight"] *= 1e6
    save_file(weights, run / "model.safetensors", metadata={"format": "pt"})
    read = ("--text", held_out(), "--lengths", 16, "--tokens", 32, "--needles", 0)
    result = invoke("lm", "eval", run, *read)
    assert result.exit_code == 0, result.exception
    assert " inf " in result.stdout


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"a\0b\n", b"\x1f\x8bx"], ids=repr)
def test_a_dry_run_reads_the_text(tmp_path, content):
    """Everything was said to be fine, and training refused the text."""
    (tmp_path / "text").write_bytes(content)
    where = (language_file(), f"data={tmp_path / 'text'}", f"output={tmp_path / 'run'}")
    assert "must " in fails("lm", "train", *where, "--dry-run")


@pytest.mark.parametrize("name", ["translate", "analyze", "explore"])
def test_a_tokenizer_without_padding_is_told(tmp_path, name):
    """It used to end in a traceback, or in an analysis of sentences without their end."""
    run = tmp_path / "run"
    shutil.copytree(small_run(), run)
    (run / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    message = fails(*COMMANDS[name](run), text="zwei\n")
    assert "must have a token for padding and one for the end; got None and None." in message
