"""From the public functions to the launches, with tensors on a device that is not the CPU.

Tensors on PyTorch's ``meta`` device have shapes and no numbers, so whatever would read or copy
them between the device and the host fails or is noticed.
"""

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from adasparse import (
    PackedKeys,
    entmax,
    entmax_attention,
    entmax_attention_varlen,
    entmax_loss,
    nn,
)
from adasparse.functional.backends import BACKENDS

pytest.importorskip("triton")

from adasparse.kernels import triton as triton_kernels
from adasparse.kernels.triton import ahead, interpreter, tuning, unsupported
from adasparse.kernels.triton.launch import encode, precision_of

pytestmark = pytest.mark.skipif(
    bool(interpreter.IS_INTERPRETED), reason="the interpreter compiles nothing"
)

#: The last one again where a value is not finite.
DECODING = ["scores_kernel", "entmax_kernel", "values_kernel", "values_kernel"]


@pytest.fixture(autouse=True)
def _triton_serves_meta(monkeypatch):
    backend = replace(BACKENDS["triton"], devices=("meta",), missing_reason=lambda: "")
    monkeypatch.setitem(BACKENDS, "triton", backend)


class NoTransfers(TorchDispatchMode):
    """Raise where an operation takes numbers from the device to the host, or back."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        # A number in CPU memory may take part in an operation on the device: it is an argument.
        given = {
            x.device.type for x in args if isinstance(x, torch.Tensor) and (x.dim() or x.is_meta)
        }
        made = {x.device.type for x in (result,) if isinstance(x, torch.Tensor)}
        is_copy = function.overloadpacket in (torch.ops.aten.copy_, torch.ops.aten._to_copy)
        devices = {x.device.type for x in args if isinstance(x, torch.Tensor)} | made
        assert len(given) <= 1 and (not given or made <= given), function
        assert not is_copy or len(devices) == 1, function
        return result


def launched(function, *, target="sm_80"):
    with ahead.recorded(target) as calls, NoTransfers():
        function()
    return calls


def tensors(*, q=17, k=17, h=4, g=4, d=16, dtype=torch.bfloat16):
    shapes = (2, h, q, d), (2, g, k, d), (2, g, k, d)
    return [torch.empty(s, dtype=dtype, device="meta", requires_grad=True) for s in shapes]


def tensors_of_one(n):
    return [x.detach()[:1].requires_grad_() for x in tensors(q=n, k=n)]


def kinds(calls):
    return {c.name: int(c.constants["FLAGS"].kind) for c in calls if "FLAGS" in c.constants}


@pytest.mark.parametrize(("alpha", "kind"), [(1.0, 0), (1.5, 1), (2.0, 2), (1.3, 4)])
def test_a_number_selects_its_map_on_the_device(alpha, kind):
    def run():
        entmax_attention(*tensors(), alpha=alpha, is_causal=True).sum().backward()

    found = kinds(launched(run))
    first = {"softmax_kernel"} if alpha == 1 else {"threshold_kernel", "output_kernel"}
    others = {"repair_kernel", "query_kernel", "key_value_kernel"}
    assert found == dict.fromkeys(first | others, kind)


def test_amd_gets_the_map_without_libdevice():
    calls = launched(lambda: entmax_attention(*tensors(), alpha=1.3), target="gfx942")
    assert set(kinds(calls).values()) == {3}


@pytest.mark.parametrize(
    "options",
    [
        {"dropout_p": 0.1},
        {"key_lengths": (2,)},
        {"attn_mask": (2, 1, 1, 17)},
        {"alibi_slopes": (4,)},
        {"window": (3, 4)},
        {"sinks": (4,)},
        {"softcap": 20.0},
        {"alpha": (4,)},
        {"alpha": (2, 4, 17, 1)},
    ],
    ids=str,
)
def test_no_option_waits_for_the_host(options):
    given = {
        name: torch.empty(
            x, device="meta", dtype=torch.int64 if name == "key_lengths" else torch.float32
        )
        if isinstance(x, tuple) and name != "window"
        else x
        for name, x in options.items()
    }

    def run():
        for x in given.values():
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                x.requires_grad_()
        entmax_attention(*tensors(), **given).sum().backward()

    assert {"query_kernel", "key_value_kernel"} <= {call.name for call in launched(run)}


def test_decoding_rows_losses_and_modules_do_not_wait_for_the_host():
    def decode():
        with torch.no_grad():
            entmax_attention(*tensors(q=1, k=600, g=2), alpha=1.5, enable_gqa=True)

    def rows():
        scores = torch.empty(3, 40, device="meta", requires_grad=True)
        alpha = torch.empty((), device="meta", requires_grad=True)
        entmax(scores, alpha=alpha).sum().backward()
        target = torch.empty(3, dtype=torch.int64, device="meta")
        entmax_loss(scores, target, alpha=1.5).backward()

    attention = nn.MultiheadAttention(16, 2, batch_first=True, device="meta")

    def module():
        x = torch.empty(2, 9, 16, device="meta")
        attention(x, x, x, need_weights=False)[0].sum().backward()

    assert [c.name for c in launched(decode)] == DECODING
    assert {c.name for c in launched(rows)} == {
        *("entmax_kernel", "entmax_backward_kernel", "loss_kernel", "loss_backward_kernel")
    }
    assert "threshold_kernel" in {c.name for c in launched(module)}


def test_packed_sequences_and_pages_do_not_wait_for_the_host():
    def integers(*shape):
        return torch.empty(shape, dtype=torch.int32, device="meta")

    def packed():
        query, key, value = (x.squeeze(0).transpose(0, 1) for x in tensors_of_one(40))
        starts = integers(4)
        output = entmax_attention_varlen(
            query, key, value, cu_seq_q=starts, max_q=20, max_k=20, is_causal=True, dropout_p=0.1
        )
        output.sum().backward()

    def pages():
        (query,) = tensors_of_one(3)[:1]
        page = torch.empty(50, 16, 4, 16, dtype=torch.bfloat16, device="meta")
        table, used = integers(3, 40), integers(3)
        options = {"block_table": table, "seqused_k": used, "max_q": 1, "max_k": 640}
        with torch.no_grad():
            query = query.squeeze(0).transpose(0, 1)
            entmax_attention_varlen(query, page, page, cu_seq_q=integers(4), **options)

    assert "key_value_kernel" in {c.name for c in launched(packed)}
    assert [c.name for c in launched(pages)] == DECODING


def test_packed_keys_lie_on_the_device():
    def run():
        query, key, value = (x.detach() for x in tensors(q=1, k=600))
        packed = PackedKeys(key)
        packed.append(key[:, :, :1])
        packed.truncate(600)
        packed.reorder(torch.empty(2, dtype=torch.int64, device="meta"))
        assert not packed.is_coded and packed.device.type == "meta"
        entmax_attention(query, packed, value)

    assert [c.name for c in launched(run)] == DECODING
    query, key, value = (x.detach() for x in tensors(k=40))
    with pytest.raises(ValueError, match="key must be on the device of query, meta; got cpu"):
        entmax_attention(query, PackedKeys(torch.zeros(key.shape, dtype=key.dtype)), value)


def test_autocast_selects_half_precision_tiles():
    def run():
        with torch.autocast("meta", dtype=torch.bfloat16):
            entmax_attention(*tensors(dtype=torch.float32), alpha=1.5)

    if not torch.amp.is_autocast_available("meta"):
        pytest.skip("this PyTorch has no autocast for the meta device")
    assert {c.arguments[0].query.dtype for c in launched(run)} == {torch.bfloat16}


def test_rows_too_far_apart_for_offsets_of_32_bits_are_copied():
    def far(*shape):  # sequence first, in a batch of 2**26 numbers a token
        return torch.empty_strided(shape, (2**25, 16, 2**26, 1), device="meta")

    def run():
        mask = torch.empty_strided((2, 4, 65, 80), (1, 2, 2**27, 2**30), device="meta")
        query, key, value = far(2, 4, 65, 16), far(2, 4, 80, 16), far(2, 4, 80, 16)
        entmax_attention(query, key, value, attn_mask=mask, alpha=1.5)

    for call in launched(run):
        inputs = call.arguments[0]
        tensors = (inputs.query, inputs.key, inputs.value, inputs.mask)
        rows = [n for x in tensors if x is not None for n in x.stride()[2:]]
        assert max(rows) < 2**31 // call.constants["FLAGS"].block_m, call.name


def test_strides_within_reach_are_kept():
    def run():
        x = torch.empty(33, 2, 4, 16, device="meta").permute(1, 2, 0, 3)
        entmax_attention(x, x, x, alpha=1.5)

    assert {c.arguments[0].query.stride() for c in launched(run)} == {(64, 16, 128, 1)}


@pytest.mark.parametrize("window", [(2**31 - 1, 2**31 - 1), (2**62, 2**40)], ids=str)
def test_windows_that_reach_everything_are_counted_in_32_bits(window):
    for call in launched(lambda: entmax_attention(*tensors(q=17, k=30), window=window)):
        sizes = call.arguments[1]
        assert (sizes.left, sizes.right) == (encode(47), encode(47)), call.name


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_products_follow_the_switch_of_pytorch(precision):
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this PyTorch has the older switch alone")
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        calls = launched(lambda: entmax_attention(*tensors(dtype=torch.float32), alpha=1.5))
    finally:
        matmul.fp32_precision = before
    assert {c.constants["FLAGS"].precision for c in calls} == {precision}


@pytest.mark.parametrize(("architecture", "is_able"), [("gfx942:xnack-", True), ("gfx90a", False)])
def test_tf32_is_asked_for_where_triton_has_it(monkeypatch, architecture, is_able):
    # On other GPUs of AMD Triton fails to compile a product in TF32.
    properties = SimpleNamespace(gcnArchName=architecture)
    switch = SimpleNamespace(fp32_precision="tf32")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.backends.cuda, "matmul", switch)
    found = precision_of(torch.float32, torch.device("cuda"))
    assert found == ("tf32" if is_able else "ieee")


@pytest.mark.parametrize(
    ("capability", "target"),
    [((8, 0), "sm_80"), ((8, 9), "sm_80"), ((9, 0), "sm_90"), ((10, 3), "sm_100"),
     ((12, 0), "sm_80")],
)  # fmt: skip
def test_every_generation_has_a_target(monkeypatch, capability, target):
    device(monkeypatch, capability)
    assert tuning.target_of(torch.device("cuda")) == target


def device(monkeypatch, capability):
    properties = SimpleNamespace(major=capability[0], minor=capability[1])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def test_older_gpus_are_refused_before_launch(monkeypatch):
    with FakeTensorMode():
        scores = torch.empty(3, 4, device="cuda")
        device(monkeypatch, (7, 5))
        assert "8.0 or later; got 7.5" in unsupported(scores)
        device(monkeypatch, (8, 6))
        assert unsupported(scores) is None


@pytest.mark.parametrize(
    ("version", "is_old"), [("3.4.0", True), ("3.5.1", False), ("3.10", False)]
)
def test_older_versions_of_triton_are_refused_before_launch(monkeypatch, version, is_old):
    # PyTorch 2.6 to 2.8 bring one that fails to compile the kernels.
    monkeypatch.setattr(triton_kernels.metadata, "version", lambda name: version)
    monkeypatch.setattr(triton_kernels, "_OLD_VERSION", triton_kernels._old_version())
    reason = triton_kernels.why_missing()
    assert ("3.5 or later; got 3.4.0" in reason) == is_old


def test_kernels_return_no_none():
    # Triton before 3.7 fails to compile a function that returns None, be it in a tuple.
    for path in Path(triton_kernels.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(
                "triton.jit" in ast.unparse(x) for x in function.decorator_list
            ):
                returned = [x.value for x in ast.walk(function) if isinstance(x, ast.Return)]
                parts = [getattr(x, "args", getattr(x, "elts", [x])) for x in returned if x]
                codes = {ast.unparse(part) for x in parts for part in x}
                assert "None" not in codes, (path.name, function.name)


def test_interpreter_takes_tensors_on_a_gpu(monkeypatch):
    # It has no libdevice, which the map for CUDA calls.
    device(monkeypatch, (9, 0))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert tuning.target_of(torch.device("cuda")) == "interpreter"


def test_one_warning_where_pytorch_computes_instead(monkeypatch):
    monkeypatch.setattr("adasparse.functional.backends._has_warned", False)
    query, key, value = tensors(dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match=r"'triton' .*got torch\.float64"):
        entmax_attention(query, key, value)
    with ahead.recorded("sm_80") as calls:
        entmax_attention(query, key, value)
    assert not calls
