"""The backend slot: registration, choice, reasons and the names of version 0.1."""

from types import SimpleNamespace

import pytest
import torch

from adasparse import entmax, entmax_attention, entmax_attention_support, entmax_loss
from adasparse.functional import backends, register_backend, unregister_backend
from adasparse.kernels import reference, triton
from adasparse.nn import EntmaxAttention
from support.attention_case import actual, tensors
from support.helpers import assert_near, randn

KERNELS = (
    "entmax_forward",
    "entmax_backward",
    "loss_forward",
    "loss_backward",
    "empty_loss_saved",
    "attention_forward",
    "attention_backward",
    "attention_support",
)


def counted(function, calls):
    """Note the call, and take float64 alone, as the oracle does."""

    def run(*arguments, **options):
        calls.append(function.__name__)
        wide = [x.double() if isinstance(x, torch.Tensor) else x for x in arguments]
        return function(*wide, **options)

    return run


@pytest.fixture
def toy():
    """The oracle as a backend of its own; gives the names of the functions called."""
    calls = []
    kernels = SimpleNamespace(
        **{name: counted(getattr(reference, name), calls) for name in KERNELS}
    )
    register_backend("toy", kernels, devices=("cpu",))
    yield calls
    unregister_backend("toy")


def test_a_registered_backend_computes_attention(toy):
    x, grad = tensors(2, 4, 7, 11, 8, g=2), randn((2, 4, 7, 8), seed=9)
    options = {
        "alpha": torch.tensor([1.0, 1.3, 1.6, 2.0]),
        "attn_mask": randn((7, 11), seed=5),
        "alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4]),
        "is_causal": True,
        "enable_gqa": True,
    }
    found = actual(*x, grad, backend="toy", **options)
    assert toy == ["attention_forward", "attention_backward"]
    wanted = actual(*x, grad, backend="torch", **options)
    for name, expected in wanted.items():
        torch.testing.assert_close(found[name], expected, atol=1e-5, rtol=1e-5)
    options.pop("alibi_slopes")
    support = entmax_attention_support(*x[:2], backend="toy", **options)
    assert toy[-1] == "attention_support"
    wanted = entmax_attention_support(*x[:2], backend="torch", **options)
    assert torch.equal(support.col, wanted.col)
    assert_near(support.value, wanted.value)


def test_a_registered_backend_compiles(toy):
    query, key, value = (t.requires_grad_() for t in tensors())

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(query, key, value):
        return entmax_attention(query, key, value, backend="toy").sin()

    output = run(query, key, value)
    wanted = entmax_attention(query, key, value, backend="torch").sin()
    assert_near(output, wanted, scale=10)
    found = torch.autograd.grad(output.sum(), (query, key, value))
    assert "attention_backward" in toy
    for x, y in zip(found, torch.autograd.grad(wanted.sum(), (query, key, value)), strict=True):
        assert_near(x, y, scale=100)


def test_a_registered_backend_computes_entmax_and_its_loss(toy):
    scores = randn((5, 7), dtype=torch.float64).requires_grad_()
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 3, -100, 6, 2])

    def run(backend):
        weights = entmax(scores, alpha, backend=backend)
        loss = entmax_loss(scores, target, alpha, label_smoothing=0.1, backend=backend)
        return [
            weights.detach(),
            loss.detach(),
            *torch.autograd.grad(weights.square().sum() + loss, (scores, alpha)),
        ]

    found = run("toy")
    assert sorted(toy) == ["entmax_backward", "entmax_forward", "loss_backward", "loss_forward"]
    for x, y in zip(found, run("torch"), strict=True):
        torch.testing.assert_close(x, y, atol=1e-9, rtol=1e-9)


def test_a_registered_loss_compiles_whatever_it_saves(toy):
    scores = randn((5, 7), dtype=torch.float64).requires_grad_()
    target = torch.tensor([0, 3, 1, 6, 2])
    run = torch.compile(
        lambda s: entmax_loss(s, target, backend="toy"), fullgraph=True, backend="aot_eager"
    )
    loss = run(scores)
    wanted = entmax_loss(scores, target)
    assert_near(loss, wanted)
    assert_near(torch.autograd.grad(loss, scores)[0], torch.autograd.grad(wanted, scores)[0])


def test_registration_is_undone():
    with pytest.raises(ValueError, match=r"\['auto', 'cpu', 'torch', 'triton'\]; got 'toy'"):
        entmax(torch.zeros(3), backend="toy")
    with pytest.raises(ValueError, match="got 'cpu'"):
        unregister_backend("cpu")
    with pytest.raises(ValueError, match="got 'plain'"):
        register_backend("plain", reference)


def test_a_new_backend_does_not_replace_the_automatic_choice(toy):
    entmax(torch.zeros(3))
    assert not toy
    assert list(backends.BACKENDS)[-1] == "torch"


def test_reasons_against_a_backend_are_quoted():
    kernels = SimpleNamespace(**{name: getattr(reference, name) for name in KERNELS})
    register_backend(
        "picky",
        kernels,
        devices=("cpu",),
        unsupported=lambda problem: "dropout" if problem.dropout_p else None,
    )
    try:
        x = tensors()
        entmax_attention(*x, backend="picky")
        with pytest.raises(RuntimeError, match="backend='picky' cannot be used: dropout"):
            entmax_attention(*x, dropout_p=0.5, backend="picky")
    finally:
        unregister_backend("picky")


def test_triton_names_its_extra_and_its_devices(monkeypatch):
    with pytest.raises(RuntimeError, match="needs tensors on cuda; got a tensor on cpu"):
        entmax(torch.zeros(3), backend="triton")
    monkeypatch.setattr(triton, "_IS_INSTALLED", False)
    name, against = backends.explain_choice("cuda")
    assert name == "torch"
    assert "pip install 'adasparse[gpu]'" in against["triton"]


@pytest.mark.parametrize(("old", "new"), [("native", "cpu"), ("plain", "torch")])
def test_names_of_version_0_1_work_with_a_warning(old, new):
    x = tensors()
    match = f"backend='{old}' is deprecated; use backend='{new}'"
    with pytest.warns(DeprecationWarning, match=match):
        output = entmax_attention(*x, backend=old)
    assert torch.equal(output, entmax_attention(*x, backend=new))
    with pytest.warns(DeprecationWarning, match=match):
        entmax(x[0], backend=old)
    with pytest.warns(DeprecationWarning, match=match):
        entmax_loss(x[0][0, 0], torch.zeros(7).long(), backend=old)
    with pytest.warns(DeprecationWarning, match=match):
        module = EntmaxAttention(3, backend=old)
    assert module.backend == new
    module(*x)
