import json
from dataclasses import replace

import pytest
import torch

from adasparse.bench import decode, decode_cases, tables
from adasparse.bench.calls import FORWARD
from adasparse.bench.decode_models import GenerationCase, TrainedCase
from adasparse.longcontext.config import LongContextConfig
from adasparse.longcontext.model import LongContextForCausalLM


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch):
    small = tuple(replace(case, length=case.length // 64) for case in decode_cases.TIMED_CASES)
    monkeypatch.setattr(decode_cases, "TIMED_CASES", small)
    models = (GenerationCase(width=16, context=40, num_tokens=2, bar=2.0), TrainedCase(length=48))
    monkeypatch.setattr(decode, "MODEL_CASES", models)


def measure(run, *options):
    result = run("decode", "--repeats", 1, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_holds_every_case_with_its_bar(run):
    found = measure(run, "--threads", 1, "--seed", 3)
    assert found["command"] == "adasparse bench decode --threads 1 --repeats 1 --seed 3"
    bars = {row["case"]: row["bar"] for row in found["results"] if row["bar"] is not None}
    assert bars == {
        "heads-4k": 2.0,
        "heads-16k": 4.0,
        "heads-64k": 6.0,
        "gqa-4k": 2.0,
        "gqa-16k": 4.0,
        "gqa-64k": 6.0,
        "gqa-plain-4k": 1.2,
        "gqa-plain-16k": 1.2,
        "gqa-plain-64k": 1.2,
        "generation": 2.0,
    }
    for row in found["results"]:
        assert row["direction"] == FORWARD
        assert row["ratio"] == pytest.approx(row["baseline_ms"] / row["ms"])
    assert found["skipped"] == [
        "trained: needs a run of 'adasparse tasks train', see --run",
    ]


def test_sizes_are_those_of_the_names():
    assert decode.case_names()[:3] == ("heads-1k", "heads-4k", "heads-16k")
    sizes = {case.name: (case.num_heads, case.num_key_heads) for case in decode_cases.TIMED_CASES}
    assert sizes["gqa-64k"] == (32, 8)
    assert sizes["heads-plain-64k"] == (8, 8)


def test_quick_takes_an_eighth_of_the_keys_and_no_bars(run):
    found = measure(run, "--quick", "--case", "heads-64k", "--case", "generation")
    assert found["command"].endswith("--quick --case heads-64k --case generation")
    assert [row["shape"][2] for row in found["results"]] == [128, 5]
    assert all(row["bar"] is None for row in found["results"])


def test_keys_of_a_run_are_decoded_with(run, monkeypatch, tmp_path):
    torch.manual_seed(0)
    config = LongContextConfig(
        vocab_size=300, hidden_size=16, num_attention_heads=2, num_hidden_layers=2
    )
    model = LongContextForCausalLM(config).eval()
    recipe = type("Recipe", (), {"task": "copy"})
    monkeypatch.setattr("adasparse.longcontext.runs.load_task_run", lambda run: (model, recipe))
    found = measure(run, "--case", "trained", "--run", tmp_path)
    (row,) = found["results"]
    assert row["layers"] == 2
    assert row["shape"][1] == 2
    assert 0 < row["support"] <= row["rescored"] <= 1
    assert found["command"].endswith(f"--run {tmp_path}")
    assert "have weight" in tables.markdown(found)


def test_the_screen_shows_bars_and_verdicts(run):
    result = run("decode", "--repeats", 1, "--case", "gqa-4k")
    assert result.exit_code == 0, result.stderr
    assert "≥ 2" in result.stdout
    assert "32 heads on 8" in result.stdout


def test_the_table_has_a_row_per_case(run):
    text = tables.markdown(measure(run, "--case", "gqa-4k", "--case", "gqa-plain-4k"))
    assert text.count("\n| 32 heads on 8") == 2


def test_figure_of_time_per_token(run, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "decode.json"
    names = [name for name in decode.case_names() if name.startswith("heads-")]
    chosen = [word for name in names for word in ("--case", name)]
    measure(run, "--output", file, *chosen)
    result = run("plot", file, "--output", tmp_path / "x.svg")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split() == [str(tmp_path / "x_time.svg")]


def test_unknown_cases_and_devices_are_named(run):
    unknown = run("decode", "--case", "nonsense").stderr
    assert "got nonsense" in unknown
    assert all(name in unknown for name in decode.case_names())
    result = run("decode", "--device", "nonsense")
    assert result.exit_code == 2
