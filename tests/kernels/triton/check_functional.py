"""The Triton kernels as a backend of the public functions and modules."""

import pytest
import torch

from adasparse import (
    entmax,
    entmax_attention,
    entmax_attention_support,
    entmax_loss,
    nn,
)
from adasparse.functional.backends import BACKENDS
from adasparse.kernels import AttentionProblem
from support.triton_problems import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


def leaves(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(DEVICE).requires_grad_() for shape in shapes]


def results(function, tensors):
    output = function(*tensors)
    gradients = torch.autograd.grad(output.square().sum(), tensors)
    return [output, *gradients]


def assert_backends_agree(function, tensors):
    for name, a, b in zip(
        ("output", *map(str, range(len(tensors)))),
        *(results(lambda *x, b=b: function(*x, b), tensors) for b in ("triton", "torch")),
        strict=True,
    ):
        assert a.shape == b.shape and a.dtype == b.dtype, name
        assert (a - b).abs().max() <= 1e-4 * b.abs().max() + 1e-6, name


def test_attention_with_learned_alpha():
    query, key, value = leaves((2, 4, 17, 16), (2, 2, 17, 16), (2, 2, 17, 8))
    alpha = torch.tensor([1.0, 1.2, 1.5, 1.9], device=DEVICE, requires_grad=True)
    lengths = torch.tensor([17, 9], device=DEVICE)

    def attend(query, key, value, alpha, backend):
        return entmax_attention(
            query, key, value, alpha=alpha, is_causal=True, key_lengths=lengths, enable_gqa=True,
            backend=backend,
        )  # fmt: skip

    assert_backends_agree(attend, [query, key, value, alpha])


def test_attention_in_half_precision():
    query, key, value = (x.detach().bfloat16() for x in leaves(*[(1, 2, 17, 16)] * 3))
    output = entmax_attention(query, key, value, backend="triton")
    expected = entmax_attention(query, key, value, backend="torch")
    assert output.dtype == torch.bfloat16 and (output - expected).abs().max() <= 0.02


def test_support():
    query, key = (x.detach() for x in leaves(*[(1, 2, 17, 16)] * 2))
    found, wanted = (
        entmax_attention_support(query, key, alpha=1.5, backend=backend)
        for backend in ("triton", "torch")
    )
    assert torch.equal(found.crow, wanted.crow) and torch.equal(found.col, wanted.col)
    assert (found.value - wanted.value).abs().max() <= 2e-6


def test_operators():
    scores, alpha = leaves((3, 40))[0], torch.tensor(1.3, device=DEVICE, requires_grad=True)
    target = torch.tensor([3, 39, -100], device=DEVICE)
    assert_backends_agree(lambda x, a, b: entmax(x, alpha=a, backend=b), [scores, alpha])
    assert_backends_agree(
        lambda x, a, b: entmax_loss(x, target, alpha=a, backend=b), [scores, alpha]
    )


def test_float64_is_refused_before_launch():
    query, key, value = (x.detach().double() for x in leaves(*[(1, 2, 3, 4)] * 3))
    with pytest.raises(RuntimeError, match=r"float32; got torch\.float64"):
        entmax_attention(query, key, value, backend="triton")


def test_large_heads_are_refused_before_launch():
    query, key, value = (x.detach() for x in leaves(*[(1, 1, 2, 257)] * 3))
    with pytest.raises(RuntimeError, match="head sizes from 1 to 256; got 257"):
        entmax_attention(query, key, value, backend="triton")


def test_compiled_number_above_two_is_computed_by_pytorch(monkeypatch):
    # The graph had chosen these kernels, which refused alpha when it ran.
    monkeypatch.delitem(BACKENDS, "cpu")
    monkeypatch.setattr("adasparse.functional.backends._has_warned", True)
    tensors = leaves(*[(1, 2, 9, 8)] * 3)

    def attend(*x):
        return entmax_attention(*x, alpha=2.5)

    torch._dynamo.reset()
    found = results(torch.compile(attend, fullgraph=True, backend="aot_eager"), tensors)
    wanted = results(lambda *x: entmax_attention(*x, alpha=2.5, backend="torch"), tensors)
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()
    torch._dynamo.reset()
    named = torch.compile(
        lambda *x: entmax_attention(*x, alpha=2.5, backend="triton"), backend="aot_eager"
    )
    with pytest.raises(RuntimeError, match=r"alpha from 1 to 2; got 2\.5"):
        named(*tensors)


@pytest.mark.parametrize(
    "alpha",
    [
        torch.tensor([1.0, 9.0, 1.3, 9.0])[::2],
        torch.linspace(1, 2, 36).reshape(1, 9, 2, 2).permute(3, 2, 1, 0),
    ],
    ids=["every second", "permuted"],
)
@pytest.mark.slow
def test_operator_takes_alpha_of_any_strides(monkeypatch, alpha):
    monkeypatch.delitem(BACKENDS, "cpu")
    query, key, value = leaves((2, 2, 9, 8), (2, 2, 12, 8), (2, 2, 12, 8))
    alpha = alpha.to(DEVICE)
    shape = alpha.shape if alpha.dim() == 4 else (1, 2, 1, 1)
    problem = AttentionProblem(
        query=query, key=key, value=value, alpha=alpha.view(shape).requires_grad_(), scale=0.3
    )
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = torch.ops.adasparse.entmax_attention.default
    torch.library.opcheck(operator, (), {**vars(problem), "backend": "auto"}, test_utils=tests)
    strided, contiguous = (
        entmax_attention(query, key, value, alpha=x, scale=0.3, backend="triton")
        for x in (alpha, alpha.contiguous())
    )
    assert torch.equal(strided, contiguous)


def test_module_trains(monkeypatch):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=True).to(DEVICE)
    (x,) = leaves((2, 9, 16))
    parameters = [x, *(p for p in module.parameters() if p.requires_grad)]

    def run():
        output = module(x, x, x)
        output = output[0] if isinstance(output, tuple) else output
        return [output, *torch.autograd.grad(output.square().sum(), parameters)]

    wanted = run()
    monkeypatch.delitem(BACKENDS, "cpu")
    found = run()
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max() + 1e-6


@pytest.mark.slow
def test_sparsified_model_generates_and_learns_the_same(monkeypatch):
    transformers = pytest.importorskip("transformers")
    from adasparse.integrations.huggingface import SparsityConfig, sparsify

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = transformers.LlamaForCausalLM(config).to(DEVICE).eval()
    sparsify(model, SparsityConfig(init_alpha=1.5))
    tokens = torch.randint(0, 20, (2, 7), device=DEVICE)
    padding = torch.ones_like(tokens)
    padding[0, :3] = 0
    parameters = [p for p in model.parameters() if p.requires_grad]

    def run():
        loss = model(input_ids=tokens, attention_mask=padding, labels=tokens).loss
        with torch.no_grad():
            generated = model.generate(
                input_ids=tokens, attention_mask=padding, max_new_tokens=2, do_sample=False
            )
        return [loss, generated, *torch.autograd.grad(loss, parameters)]

    wanted = run()
    # Without the others a call that Triton does not support fails instead of falling back.
    for name in ("cpu", "torch"):
        monkeypatch.delitem(BACKENDS, name)
    found = run()
    assert torch.equal(found[1], wanted[1])
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max() + 1e-6
