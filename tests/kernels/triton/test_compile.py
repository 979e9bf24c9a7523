"""The Triton kernels without a device: a part of the compile table, and the number of variants."""

import functools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import gpu_compile
import gpu_problems
import gpu_variants

from adasparse.kernels.triton import ahead, interpreter, tuning
from adasparse.kernels.triton.attention import attention_forward

pytestmark = pytest.mark.skipif(
    bool(interpreter.IS_INTERPRETED), reason="the interpreter compiles nothing"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def launch_of(name, target, alpha, dim=64, dtype=torch.bfloat16):
    calls = gpu_problems.launches(target, gpu_problems.problem(dim, dtype, alpha))
    return next(call for call in calls if call.name == f"{name}_kernel")


@functools.cache
def threshold_for(target):
    return launch_of("threshold", target, None).compile(target)


def test_first_pass_is_short_and_nothing_spills():
    loops = {}
    for name, alpha in (("threshold", None), ("softmax", 1.0)):
        compiled = threshold_for("sm_80")
        if name == "softmax":
            compiled = launch_of(name, "sm_80", alpha).compile("sm_80")
        used = ahead.resources(compiled)
        assert used.spills == 0 and used.shared <= ahead.SHARED_LIMITS["sm_80"]
        loops[name] = [sum(loop.values()) for loop in ahead.inner_loops(compiled) if "HMMA" in loop]
    first, _, second, *_ = loops["threshold"]
    softmax = loops["softmax"][0]
    assert first <= 0.5 * softmax and second <= 1.2 * softmax


def test_compiles_for_amd():
    used = ahead.resources(launch_of("output", "gfx942", 1.5).compile("gfx942"))
    assert used.spills == 0 and used.shared <= ahead.SHARED_LIMITS["gfx942"]


@pytest.mark.slow
@pytest.mark.parametrize("target", tuning.TARGETS)
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("alpha", gpu_problems.MAPS.values(), ids=gpu_problems.MAPS)
def test_no_default_variant_spills(target, dim, alpha):
    for call in gpu_problems.launches(target, gpu_problems.problem(dim, torch.bfloat16, alpha)):
        used = ahead.resources(call.compile(target))
        assert used.spills == 0 and used.shared <= ahead.SHARED_LIMITS[target], call.name


MAKERS = (gpu_variants.attention_calls, gpu_variants.decoding_calls, gpu_variants.row_calls)


@pytest.mark.parametrize("make", MAKERS)
def test_lengths_and_head_counts_compile_nothing_anew(make, monkeypatch):
    monkeypatch.setattr(gpu_variants, "LENGTHS", (1, 16, 17, 1000, 65536))
    monkeypatch.setattr(gpu_variants, "HEADS", (2, 12, 16))
    found = gpu_variants.count(make, maps=("1.5", "general"))
    assert len(found) >= 8
    assert set(found.values()) == {1}, found


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_fifteen_lengths_and_six_head_counts_compile_nothing_anew(make):
    found = gpu_variants.count(make)
    assert set(found.values()) == {1}, found


def test_table_has_every_variant_without_spills():
    found = json.loads(gpu_compile.RESULTS.read_text())
    wanted = {key for key, *_ in gpu_compile.variants(list(gpu_problems.DTYPES))}
    wanted = {key for key in wanted if gpu_compile.OPTIONS not in key}
    assert len(wanted) == 540 and not wanted - found.keys()
    for key, row in found.items():
        assert row["shared"] <= ahead.SHARED_LIMITS[key.split()[0]], key
        assert key not in wanted or row["spills"] == 0, key


def test_table_is_that_of_the_tuning():
    found = json.loads(gpu_compile.RESULTS.read_text())
    for key, _, call in gpu_compile.variants(["bfloat16", "float32"]):
        flags, row = call.constants["FLAGS"], found.get(key)
        used = {"blocks": [flags.block_m, flags.block_n], "warps": call.warps}
        used["stages"] = call.stages
        assert row is None or {name: row[name] for name in used} == used, key


@pytest.mark.parametrize(("dim", "dtype"), [(128, torch.bfloat16), (256, torch.float32)], ids=str)
def test_decoding_spills_nothing(dim, dtype):
    plain = gpu_problems.problem(dim, dtype, 1.5)
    rows = 128 if dtype == torch.bfloat16 else 32
    one = replace(plain, query=plain.query.new_empty(2, 8 * rows // 4, 4, dim))
    with ahead.recorded("sm_80") as calls:
        attention_forward(one, keep=False)
    values = next(call for call in calls if call.name == "values_kernel")
    assert values.constants["ROWS"] == rows
    used = ahead.resources(values.compile("sm_80"))
    assert used.spills == 0 and used.shared <= ahead.SHARED_LIMITS["sm_80"]


def test_barrier_between_writing_and_reading_the_mask():
    # One thread writes a word, and all read it: the interpreter cannot show a missing barrier.
    code = threshold_for("sm_80").asm["ttgir"]
    found = re.findall(r"tt\.(store|load)\b[^\n]*: !tt\.ptr<i32>|ttg\.(barrier) all", code)
    steps = [access or barrier for access, barrier in found]
    assert steps[:3] == ["store", "barrier", "load"], steps


def test_every_target_has_tiles():
    for target in tuning.TARGETS:
        for dim in (16, 64, 128, 256):
            for dtype in (torch.float16, torch.bfloat16, torch.float32):
                assert tuning.tiles_for(target, dim, dtype).block_n >= 16
