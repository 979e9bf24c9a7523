import json

import pytest
import torch
from torch.nn import functional

import adasparse
from adasparse.bench import attention, attention_cases, calls, tables
from adasparse.bench.calls import BOTH, FORWARD, PACKAGE
from adasparse.cli.bench import attention as command
from adasparse.kernels import cpu

FULL_SHAPES = {case.name: case.shape for case in attention_cases.CASES}


def measure(run, *options):
    result = run("attention", "--repeats", 1, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_holds_every_case_in_both_directions_with_its_bar(run):
    found = measure(run, "--threads", 1, "--seed", 3)
    assert found["command"] == "adasparse bench attention --threads 1 --repeats 1 --seed 3"
    bars = {(row["case"], row["direction"]): row["bar"] for row in found["results"]}
    if not cpu.is_available():
        bars["gemm", FORWARD] = 0.65
    assert bars == {
        ("n64", BOTH): 1.5,
        ("n64", FORWARD): 0.8,
        ("n512", BOTH): 3.5,
        ("n512", FORWARD): 1.6,
        ("n2048", BOTH): 7.0,
        ("n2048", FORWARD): 2.8,
        ("n4096", BOTH): 9.0,
        ("n4096", FORWARD): 3.5,
        ("n8192", BOTH): 11.0,
        ("n8192", FORWARD): 4.0,
        ("causal", BOTH): 8.0,
        ("causal", FORWARD): 3.2,
        ("wide", BOTH): 9.0,
        ("wide", FORWARD): 3.5,
        ("bfloat16-n512", BOTH): 1.5,
        ("bfloat16-n512", FORWARD): 1.0,
        ("bfloat16-n2048", BOTH): 4.0,
        ("bfloat16-n2048", FORWARD): 2.0,
        ("bfloat16-n4096", BOTH): 6.0,
        ("bfloat16-n4096", FORWARD): 2.5,
        ("translation", BOTH): 1.2,
        ("translation", FORWARD): 0.8,
        ("learned-n64", BOTH): 1.0,
        ("learned-n64", FORWARD): 0.6,
        ("learned-n512", BOTH): 1.7,
        ("learned-n512", FORWARD): 1.1,
        ("learned-n2048", BOTH): 2.3,
        ("learned-n2048", FORWARD): 1.5,
        ("learned-n4096", BOTH): 2.8,
        ("learned-n4096", FORWARD): 1.8,
        ("softmax", BOTH): 0.8,
        ("softmax", FORWARD): 0.7,
        ("package", BOTH): 60.0,
        ("package", FORWARD): 60.0,
        ("memory", BOTH): 1.0,
        ("gemm", FORWARD): 0.65,
    }
    timed = [row for row in found["results"] if "ratio" in row]
    assert all(row["ratio"] == pytest.approx(row["baseline_ms"] / row["ms"]) for row in timed)


def test_sizes_are_those_of_the_names():
    assert FULL_SHAPES["n64"] == FULL_SHAPES["learned-n64"] == (8, 8, 64, 64)
    assert FULL_SHAPES["n8192"] == (1, 8, 8192, 64)
    assert FULL_SHAPES["translation"] == (128, 8, 24, 32)
    assert FULL_SHAPES["memory"] == (1, 8, 16384, 64)


def test_quick_takes_an_eighth_of_the_tokens_and_no_bars(run):
    for row in measure(run, "--quick")["results"]:
        small = next(case for case in attention_cases.CASES if case.name == row["case"])
        b, _, n, _ = row["shape"]
        assert b * n == small.shape[0] * small.shape[2] // 8
        assert row["bar"] is None


def test_only_the_cases_asked_for_are_run(run):
    found = measure(run, "--case", "causal", "--case", "n64")
    assert found["command"].endswith("--seed 0 --case causal --case n64")
    assert [row["case"] for row in found["results"]] == ["n64", "n64", "causal", "causal"]


def test_unknown_case_is_answered_with_the_known_ones(run):
    result = run("attention", "--case", "n65")
    assert result.exit_code == 2
    assert "n65" in result.stderr
    assert "learned-n512" in result.stderr


def test_missing_package_is_noted(run, monkeypatch):
    monkeypatch.setattr(calls, "has_entmax_package", lambda: False)
    found = measure(run, "--case", "package", "--case", "n64")
    assert found["skipped"] == ["entmax.entmax15: not installed"]
    assert {row["case"] for row in found["results"]} == {"n64"}


def test_missing_kernels_are_noted(run, monkeypatch):
    monkeypatch.setattr(cpu, "is_available", lambda: False)
    monkeypatch.setattr(cpu, "missing_reason", "no compiler")
    assert measure(run, "--case", "gemm")["skipped"] == ["QKᵀ inside the kernel: no compiler"]


@pytest.fixture
def recorded(monkeypatch):
    """The arguments of each call of our attention and of torch's."""
    seen = {"ours": [], "known": []}

    def watch(name, module, function):
        original = getattr(module, function)

        def watched(*inputs, **arguments):
            seen[name].append((inputs, arguments, torch.is_grad_enabled()))
            return original(*inputs, **arguments)

        monkeypatch.setattr(module, function, watched)

    watch("ours", adasparse, "entmax_attention")
    watch("known", functional, "scaled_dot_product_attention")
    return seen


def test_both_functions_get_the_same_tokens_padding_and_dropout(run, recorded):
    measure(run, "--case", "translation")
    for (ours, our, _), (known, its, _) in zip(recorded["ours"], recorded["known"], strict=False):
        assert all(torch.equal(a, b) for a, b in zip(ours, known, strict=True))
        assert our["dropout_p"] == its["dropout_p"] == 0.1
        lengths, n = our["key_lengths"], ours[1].shape[2]
        assert 8 <= lengths.min() < lengths.max() <= 24 == n
        assert its["attn_mask"].shape == (len(lengths), 1, 1, n)
        assert torch.equal(its["attn_mask"].sum(-1).flatten(), lengths)


def test_both_functions_are_causal_where_one_is(run, recorded):
    measure(run, "--case", "causal", "--case", "n64")
    for calls_of in recorded.values():
        assert {arguments["is_causal"] for _, arguments, _ in calls_of} == {True, False}


def test_learned_alphas_are_spread_over_the_heads_and_get_gradients(run, recorded, monkeypatch):
    asked = []
    original = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda y, by, g: asked.append(len(by)) or original(y, by, g)
    )
    measure(run, "--case", "learned-n64")
    alpha = recorded["ours"][0][1]["alpha"]
    assert torch.equal(alpha, torch.linspace(1.05, 1.95, 8))
    assert set(asked) == {3, 4}  # by query, key and value; by ours also alpha
    assert {is_enabled for _, _, is_enabled in recorded["ours"]} == {True, False}


def test_package_is_used_over_dense_scores():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 9, 4, generator=generator) for _ in range(3))
    if not calls.has_entmax_package():
        pytest.skip("the entmax package is not installed")
    found = calls.attention(PACKAGE)(query, key, value)
    assert (found - adasparse.entmax_attention(query, key, value)).abs().max() < 1e-5


def rows():
    timed = {
        "case": "n64",
        "title": "α = 1.5",
        "shape": [8, 8, 64, 64],
        "alpha": 1.5,
        "baseline": "scaled_dot_product_attention",
        "direction": BOTH,
        "ms": 2.0,
        "baseline_ms": 3.0,
        "ratio": 1.5,
        "bar": 1.5,
    }
    named = {"title": "", "shape": [1, 8, 4096, 64]}
    return [
        timed,
        {**timed, "direction": FORWARD, "bar": 1.6},
        {**named, "case": "memory", "direction": BOTH, "gib": 0.25, "dense_gib": 0.5, "bar": 0.2},
        {
            **named,
            "case": "gemm",
            "direction": FORWARD,
            "gflops": 70.0,
            "gemm_gflops": 100.0,
            "share": 0.7,
            "bar": 0.65,
        },
    ]


def test_tables_say_what_was_wanted_and_whether_it_is_met(result, capsys):
    command.show(result("attention", rows()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "forward",
        "+",
        "backward",
        *["b×h×n×d", "baseline", "ours", "ratio", "bar"],
    ]
    assert lines[1].split()[-6:] == ["3.00", "2.00", "1.50×", "≥", "1.5", "met"]
    assert lines[4].split()[-6:] == ["3.00", "2.00", "1.50×", "≥", "1.6", "missed"]
    assert lines[6].endswith("0.25 GiB; dense weights alone would take 0.50 GiB. ≤ 0.2 GiB missed")
    assert lines[7].endswith(
        "70% of the 100 that torch.matmul reaches on large matrices. ≥ 65% met"
    )


def test_tables_fit_80_columns(run):
    lines = run(
        "attention", "--repeats", 1, "--case", "package", "--case", "n64"
    ).stdout.splitlines()
    assert lines[-1].startswith("attention | cpu:")
    assert max(map(len, lines[:-1])) <= 80


def test_markdown_has_a_line_per_case_and_the_other_facts(result):
    lines = tables.markdown(result("attention", rows())).splitlines()
    assert lines[0].count("|") == 8
    assert lines[2] == (
        "| α = 1.5 | `scaled_dot_product_attention` | 8×8×64×64 "
        "| 3.00 | 2.00 (1.50×) | 3.00 | 2.00 (1.50×) |"
    )
    assert "0.25 GiB" in lines[4]
    assert "70%" in lines[6]
    assert lines[-1].startswith("`attention | cpu:Some-CPU")


def test_names_of_cases_are_different():
    names = attention.case_names()
    assert len(set(names)) == len(names)
