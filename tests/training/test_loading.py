"""Folders of models with damaged, missing or foreign content."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from adasparse.analysis.runs import load_run as load_for_analysis
from adasparse.longcontext.runs import load_language_run, load_task_run
from adasparse.translation.data import PreparedData
from adasparse.translation.runs import load_run
from support.small_language import language_run
from support.small_runs import small_data, small_run
from support.small_tasks import task_run

RUNS = {
    load_run: small_run,
    load_for_analysis: small_run,
    load_task_run: task_run,
    load_language_run: language_run,
}


@pytest.fixture(params=RUNS, ids=["translate", "analyze", "tasks", "lm"])
def loader(request):
    return request.param


@pytest.fixture
def copy(loader, tmp_path):
    """A copy of the run that a loader loads."""
    shutil.copytree(RUNS[loader](), tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_weights(folder, action):
    weights = load_file(folder / "model.safetensors")
    action(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_tokenizer(folder, action):
    content = json.loads((folder / "tokenizer.json").read_text())
    action(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))


def a_layer(weights):
    return next(name for name in weights if ".layers.0." in name and name.endswith("weight"))


def test_an_intact_copy_loads(loader, copy):
    loader(copy)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(loader, copy, value):
    change_weights(copy, lambda weights: weights[a_layer(weights)].view(-1)[0].fill_(value))
    with pytest.raises(ValueError, match=r"weights that are not finite: .*layers\.0"):
        loader(copy)


def test_whole_numbers_for_weights_are_refused(loader, copy):
    """A file that gives the bits of a weight another type used to load, with huge weights."""

    def lie(weights):
        name = a_layer(weights)
        weights[name] = weights[name].view(torch.int32)

    change_weights(copy, lie)
    with pytest.raises(ValueError, match=r"must be floating-point numbers; the file has I32"):
        loader(copy)


def test_a_missing_weight_is_refused(loader, copy):
    change_weights(copy, lambda weights: weights.pop(a_layer(weights)))
    with pytest.raises(ValueError, match=r"weights are incomplete; missing: .*layers\.0"):
        loader(copy)


@pytest.mark.parametrize(
    ("change_by", "complaint"), [(1, "missing"), (-1, "does not name|at least 1; got 0")]
)
def test_another_number_of_layers_is_refused(loader, copy, change_by, complaint):
    config = json.loads((copy / "config.json").read_text())
    name = next(x for x in ("encoder_layers", "num_hidden_layers") if x in config)
    change(copy / "config.json", **{name: config[name] + change_by})
    with pytest.raises(ValueError, match=complaint):
        loader(copy)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"d_model": 32, "hidden_size": 32}, "must have shape"),
        ({"d_model": 10**12, "hidden_size": 10**12}, "but the largest size of a weight is"),
        ({"vocab_size": 10**12}, "but the largest size of a weight is"),
        ({"encoder_layers": 10**9, "num_hidden_layers": 10**9}, "says (encoder|num_hidden)_layers"),
        ({"d_model": "wide", "hidden_size": "wide"}, "cannot be loaded"),
        ({"model_type": "nothing"}, "cannot be loaded"),
    ],
    ids=str,
)
def test_a_configuration_of_other_sizes_is_refused(loader, copy, values, complaint):
    config = json.loads((copy / "config.json").read_text())
    change(copy / "config.json", **{x: y for x, y in values.items() if x in config})
    if loader in (load_task_run, load_language_run) and "model_type" in values:
        pytest.skip("the class is known")
    with pytest.raises(ValueError, match=complaint) as caught:
        loader(copy)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b""),
        ("config.json", b"[" * 100_000),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"[]"),
        ("tokenizer.json", b"garbage"),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b"{"),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0{\"a\": 1"),
    ],
    ids=lambda x: repr(x[:12]),
)  # fmt: skip
def test_garbage_is_refused(loader, copy, name, content):
    if loader is load_task_run and name.startswith("tokenizer"):
        pytest.skip("tasks have no tokenizer")
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged|cannot be loaded") as caught:
        loader(copy)
    assert str(copy) in str(caught.value)


def test_truncated_weights_are_refused(loader, copy):
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cannot be loaded: .*incomplete metadata"):
        loader(copy)


def test_code_of_a_folder_is_refused(loader, copy):
    change(copy / "config.json", auto_map={"AutoModel": "code.Model"})
    (copy / "code.py").write_text(f"open({str(copy / 'marker')!r}, 'w')")
    with pytest.raises(ValueError, match=r"names Python code of its own \(auto_map\)"):
        loader(copy)
    assert not (copy / "marker").exists()


def test_code_beside_a_prepared_tokenizer_is_refused(tmp_path):
    shutil.copytree(small_data(), tmp_path / "data")
    path = tmp_path / "data/tokenizer/tokenizer_config.json"
    change(path, auto_map={"AutoTokenizer": ["code.T", None]})
    manifest = tmp_path / "data/manifest.json"
    content = json.loads(manifest.read_text())
    content["files"].pop("tokenizer/tokenizer_config.json", None)
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"names Python code of its own"):
        _ = PreparedData.open(tmp_path / "data").tokenizer


def test_a_recipe_that_is_a_trap_is_refused(tmp_path):
    """Aliases that stand for 10**9 values used to take all of memory."""
    shutil.copytree(small_run(), tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "run/recipe.yaml").write_text("a: &a [x, x]\nb: [*a, *a]\n")
    with pytest.raises(ValueError, match=r"recipe\.yaml must be YAML: aliases such as \*a are not"):
        load_for_analysis(tmp_path / "run")


def test_a_pooler_that_nobody_saved_is_fine(tmp_path):
    """A model loaded as another class than it was saved as may have new weights outside layers."""
    from transformers import AutoModel, BertConfig, BertForMaskedLM

    from adasparse.training.loading import load_model

    config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=8, max_position_embeddings=8)  # fmt: skip
    BertForMaskedLM(config).save_pretrained(tmp_path)
    assert torch.is_tensor(load_model(AutoModel, tmp_path).pooler.dense.weight)


@pytest.mark.parametrize("load", [load_run, load_for_analysis], ids=["translate", "analyze"])
def test_buffers_that_are_not_finite_are_refused(load, tmp_path):
    """Marian adds one to its logits; with a NaN in it, translations were empty without a word."""
    folder = tmp_path / "run"
    shutil.copytree(small_run(), folder, ignore=shutil.ignore_patterns("checkpoints"))
    weights = load_file(folder / "model.safetensors")
    weights["final_logits_bias"][0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="weights that are not finite: final_logits_bias"):
        load(folder)


def test_settings_that_fail_only_when_a_model_runs_are_refused(loader, copy):
    """They used to end the command with the traceback of the first sentence."""
    values = {"dropout": float("nan"), "rms_norm_eps": "x"}
    name = (
        "rms_norm_eps"
        if "rms_norm_eps" in json.loads((copy / "config.json").read_text())
        else "dropout"
    )
    change(copy / "config.json", **{name: values[name]})
    with pytest.raises(ValueError, match=r"cannot be loaded: .*(rms_norm|dropout)"):
        loader(copy)


def test_outputs_that_are_not_finite_are_refused(loader, copy):
    """Weights can be finite and still too large."""

    def enlarge(weights):
        for x in weights.values():
            x.fill_(3e38)

    change_weights(copy, enlarge)
    with pytest.raises(ValueError, match=r"cannot be loaded: its outputs are not finite|alpha"):
        loader(copy)


@pytest.mark.parametrize("loader", [load_run, load_language_run], indirect=True)
def test_damaged_settings_of_generation_are_refused(loader, copy):
    change(copy / "generation_config.json", eos_token_id="x")
    with pytest.raises(ValueError, match="cannot be loaded: "):
        loader(copy)


@pytest.mark.parametrize("loader", [load_run], indirect=True)
@pytest.mark.parametrize("values", [{"model_input_names": 7}, {"model_max_length": "x"}], ids=str)
def test_a_tokenizer_that_cannot_read_is_refused(loader, copy, values):
    change(copy / "tokenizer_config.json", **values)
    with pytest.raises(ValueError, match=r"The tokenizer in .* cannot be loaded: "):
        loader(copy)


@pytest.mark.parametrize("loader", [load_run], indirect=True)
def test_a_tokenizer_that_panics_is_refused(loader, copy):
    """A panic in Rust is no Exception; it used to end the process with a traceback."""
    change_tokenizer(copy, lambda content: content["post_processor"].update(special_tokens={}))
    with pytest.raises(ValueError, match=r"The tokenizer in .* cannot be loaded: "):
        loader(copy)


@pytest.mark.parametrize("loader", [load_run, load_language_run, load_for_analysis], indirect=True)
def test_a_tokenizer_of_another_model_is_refused(loader, copy):
    """An id without an embedding used to end in a traceback."""

    def move(content):
        content["model"]["vocab"] = {x: i + 5000 for x, i in content["model"]["vocab"].items()}

    change_tokenizer(copy, move)
    with pytest.raises(ValueError, match=r"must be of one training: the model has \d+ tokens"):
        loader(copy)
