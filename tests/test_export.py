"""Models exported by torch.export, AOTInductor and ONNX give the outputs of PyTorch."""

import io
import logging

import pytest
import torch
from torch import nn
from torch.export import Dim

import adasparse
from adasparse.export import decompositions, to_onnx
from adasparse.kernels import AttentionProblem, reference
from adasparse.kernels.problem import field_names
from adasparse.kernels.torch import entmax_unrolled
from support.onnx_session import BAR, session_of
from support.tolerances import assert_near

pytestmark = pytest.mark.filterwarnings(  # of the exporter and of ONNX, about themselves
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


class Weigh(nn.Module):
    def __init__(self, alpha=None, dim=-1):
        super().__init__()
        self.alpha, self.dim = alpha, dim

    def forward(self, scores, alpha=None):
        return adasparse.entmax(scores, alpha if self.alpha is None else self.alpha, self.dim)


class LearnedWeigh(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, scores):
        return adasparse.entmax(scores, self.alpha(), 0)


class Attend(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value, **tensors):
        return adasparse.entmax_attention(query, key, value, **self.options, **tensors)


class Masked(nn.Module):
    def forward(self, query, key, value, mask):
        return adasparse.entmax_attention(query, key, value, mask)


@pytest.fixture(autouse=True)
def _quiet_exporter():
    """The exporter warns that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def qkv(b=2, h=4, q=5, k=7, d=8, g=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = (b, h, q, d), (b, g or h, k, d), (b, g or h, k, d)
    return tuple(torch.randn(size, generator=generator) for size in sizes)


def awkward_rows(n, dtype):
    generator = torch.Generator().manual_seed(n)
    spread = torch.tensor([0, 0.01, 0.3, 1, 3, 10, 100, 3, 3, 3, 3, 3])
    rows = torch.randn(len(spread), n, generator=generator) * spread[:, None]
    rows[7, ::2] = -torch.inf
    rows[8] = -torch.inf
    rows[9] = -1e30
    rows[10, 1:] = rows[10, 0] - 0.99
    rows[11, -1] = torch.nan
    return rows.to(dtype)


def constant(value):
    """An alpha as exporters pass a number: a tensor that knows its value."""
    alpha = torch.tensor(value, dtype=torch.float64)
    alpha.constant = alpha.clone()
    return alpha


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [1, 2, 7, 129, 1025])
@pytest.mark.parametrize(
    "alpha", [1.0, 1 + 1e-6, 1.04, 1.05, 1.3, 1.5, 1.9, 2.0, 2.5, 3.0, 8.0, 30.0]
)
def test_fixed_steps_agree_with_the_reference(alpha, n, dtype):
    scores = awkward_rows(n, dtype)
    exact = torch.tensor(alpha, dtype=torch.float64)
    expected = reference.entmax_forward(scores.double(), exact)
    assert_near(entmax_unrolled(scores, constant(alpha)), expected, scale=2)
    assert_near(entmax_unrolled(scores, exact), expected, scale=2)
    assert_near(entmax_unrolled(scores, exact, max(2.0, alpha)), expected, scale=2)


def exported(module, inputs, dynamic_shapes=None):
    return torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False)


def saved_and_loaded(program):
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return torch.export.load(io.BytesIO(buffer.getvalue()))


LENGTHS = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC},) * 3


def test_export_save_and_load():
    query, key, value = qkv(q=7)
    program = saved_and_loaded(exported(Attend(is_causal=True), (query, key, value), LENGTHS))
    assert "adasparse.entmax_attention" in str(program.graph)
    other = qkv(b=3, q=11, k=11, seed=1)
    torch.testing.assert_close(
        program.module()(*other), adasparse.entmax_attention(*other, is_causal=True)
    )


def test_decompositions_leave_no_operator_of_ours():
    program = exported(Attend(is_causal=True), qkv(q=7), LENGTHS)
    plain = program.run_decompositions(decompositions())
    assert "adasparse" not in str(plain.graph)
    other = qkv(b=3, q=11, k=11, seed=1)
    torch.testing.assert_close(plain.module()(*other), program.module()(*other))


def is_wide(program):
    """Whether a decomposed program computes in float64, with more than the exponents of heads."""
    values = [node.meta.get("val") for node in program.graph.nodes]
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    return any(x.dtype == torch.float64 and x.numel() > 4 for x in tensors)


class Twice(adasparse.nn.LearnedAlpha):
    def forward(self):
        return super().forward().mul_(2)


UP_TO_2 = adasparse.nn.LearnedAlpha(4, init="spread")
UP_TO_4 = adasparse.nn.LearnedAlpha(4, init="spread", high=4.0)


@pytest.mark.parametrize(
    ("kind", "alpha", "wide"),
    [
        (adasparse.nn.EntmaxAttention, UP_TO_2, False),
        pytest.param(adasparse.nn.EntmaxAttention, UP_TO_4, True, marks=pytest.mark.slow),
        (adasparse.nn.EntmaxAttention, Twice(4, init="spread"), True),
        (Weigh, UP_TO_2, False),
        (Weigh, UP_TO_4, True),
        pytest.param(Weigh, Twice(4, init="spread"), True, marks=pytest.mark.slow),
    ],
    ids=[f"{x}, {y}" for x in ("attention", "weights") for y in ("up to 2", "up to 4", "changed")],
)
def test_learned_exponents_up_to_two_need_no_float64(kind, alpha, wide):
    """Of a learned alpha exporters know its range, not its values."""
    made = {
        adasparse.nn.EntmaxAttention: lambda: (adasparse.nn.EntmaxAttention(4, alpha=alpha), qkv()),
        Weigh: lambda: (LearnedWeigh(alpha), (torch.randn(7, 4),)),
    }
    module, inputs = made[kind]()
    with torch.no_grad():
        program = saved_and_loaded(exported(module, inputs)).run_decompositions(decompositions())
        assert_near(program.module()(*inputs), module(*inputs), scale=2)
    assert is_wide(program) == wide


def test_every_operator_has_a_decomposition():
    names = {str(op).split(".")[1] for op in decompositions()}
    registered = {
        name.removeprefix("adasparse::").split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("adasparse::")
    }
    assert registered == names


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="the ONNX exporter of torch 2.6 fixes the lengths"
)
def test_onnx_attention_of_any_length():
    program = to_onnx(Attend(is_causal=True), qkv(q=7), dynamic_shapes=LENGTHS)
    run = session_of(program)
    for b, n in ((2, 7), (1, 1), (3, 33)):
        other = qkv(b=b, q=n, k=n, seed=n)
        expected = adasparse.entmax_attention(*other, is_causal=True)
        assert (run(*other) - expected).abs().max() <= BAR


class Packed(nn.Module):
    def forward(self, x, ends):
        return adasparse.entmax_attention_varlen(
            x, x, x, cu_seq_q=ends, cu_seq_k=ends, max_q=4, max_k=4
        )


def packed_inputs():
    return torch.randn(7, 2, 8), torch.tensor([0, 3, 7], dtype=torch.int32)


def test_onnx_refuses_dropout_packed_sequences_and_losses():
    with pytest.raises(Exception, match=r"cannot hold dropout; got dropout_p=0\.5") as found:
        to_onnx(exported(Attend(dropout_p=0.5), qkv()))
    assert "model.eval()" in str(found.value)

    class Loss(nn.Module):
        def forward(self, scores, target):
            return adasparse.entmax_loss(scores, target)

    inputs = torch.randn(2, 5), torch.tensor([0, 1])
    with pytest.raises(Exception, match="packed sequences; export a padded batch"):
        to_onnx(exported(Packed(), packed_inputs()))
    with pytest.raises(Exception, match="export the model without its loss"):
        to_onnx(exported(Loss(), inputs))


def test_masks_of_a_decomposed_program_have_any_length():
    """The length of a mask was asked for by ``len``, which made it a constant of the graph."""
    shapes = (*LENGTHS, {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC})
    program = exported(Masked(), (*qkv(q=7), torch.rand(2, 1, 7, 7) > 0.4), shapes)
    plain = program.run_decompositions(decompositions()).module()
    other = (*qkv(b=3, q=11, k=11, seed=1), torch.rand(3, 1, 11, 11) > 0.4)
    torch.testing.assert_close(plain(*other), Masked()(*other))


def test_an_exported_program_has_its_arguments():
    with pytest.raises(ValueError, match="part of an exported program"):
        to_onnx(exported(Weigh(1.5), (torch.randn(2, 3),)), (torch.randn(2, 3),))


def test_training_mode_is_restored():
    module = nn.Sequential(nn.Dropout(0.5), Weigh(2.0))
    module[1].eval()
    to_onnx(module, (torch.randn(2, 3),))
    assert module.training
    assert module[0].training
    assert not module[1].training


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-6, 1.05, 1.3, 1.5, 2.0, 3.0])
def test_onnx_entmax(alpha):
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    run = session_of(to_onnx(Weigh(alpha), (torch.randn(3, 7),), dynamic_shapes=shapes))
    for n in (1, 7, 129, 1025):
        scores = awkward_rows(n, torch.float32)[:-1]
        # In float64: sparsemax of a thousand equal, tiny weights is off by 2e-5 in float32.
        assert (run(scores) - adasparse.entmax(scores.double(), alpha)).abs().max() <= BAR


@pytest.mark.slow
def test_onnx_entmax_with_alpha_as_an_input():
    """An alpha above 2 was NaN: the graph took a solver that is right up to 2."""
    alpha = torch.tensor([1.0, 1 + 1e-6, 1.05, 1.5, 2.0, 3.0, 10.0])[:, None]
    shapes = {1: Dim.DYNAMIC}, None
    program = to_onnx(Weigh(), (torch.randn(7, 7), alpha), dynamic_shapes=shapes)
    run = session_of(program)
    for n in (3, 64, 1025):
        scores = 3 * torch.randn(7, n)
        assert (run(scores, alpha) - adasparse.entmax(scores, alpha)).abs().max() <= BAR


OPTIONS = {
    "alpha": {"alpha": torch.tensor([1.0, 1.3, 2.0, 4.0])},
    "attn_mask": {"attn_mask": torch.rand(5, 7) > 0.4},
    "bias": {"attn_mask": torch.randn(2, 1, 5, 7)},
    "scale": {"scale": 0.3},
    "key_lengths": {"key_lengths": torch.tensor([3, 7])},
    "alibi_slopes": {"alibi_slopes": torch.tensor([1.0, 0.5, 0.0, 0.1])},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "enable_gqa": {"enable_gqa": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_onnx_options_of_attention(name):
    options = OPTIONS[name]
    tensors = {key: x for key, x in options.items() if isinstance(x, torch.Tensor)}
    numbers = {key: x for key, x in options.items() if key not in tensors}
    inputs = qkv(g=2 if name == "enable_gqa" else None)
    program = to_onnx(Attend(**numbers), inputs, kwargs=tensors)
    expected = adasparse.entmax_attention(*inputs, **options)
    assert (session_of(program)(*inputs, *tensors.values()) - expected).abs().max() <= BAR


def test_options_cover_the_fields_of_attention():
    """A new field of attention must be exported, or refused by name."""
    covered = {
        "query", "key", "value", "alpha", "mask", "slopes", "sinks", "key_lengths", "scale",
        "is_causal", "window_left", "window_right", "softcap", "position", "codes", "code_bounds",
        "highest_alpha",
    }  # fmt: skip
    packed = {"cu_seq_q", "cu_seq_k", "block_table", "max_q", "max_k"}
    refused = {"seed", "dropout_p", *packed}
    assert set(field_names(AttentionProblem)) == covered | refused


def tiny_model(kind, config):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    if kind == "llama":
        made = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**sizes, num_key_value_heads=2)
        )
    else:
        made = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    adasparse.sparsify(made.eval(), config)
    made.config.use_cache = False
    return made


class Logits(nn.Module):
    """The logits of a transformers model, of token ids and a mask of the padding."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def padded_batch(b, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 50, (b, n), generator=generator)
    lengths = torch.randint(max(1, n // 2), n + 1, (b, 1), generator=generator)
    return ids, (torch.arange(n) < lengths).long()


TOKENS = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},) * 2


@pytest.mark.slow
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_onnx_of_a_sparse_model(kind, learned):
    made = {"alpha": "learned" if learned else "fixed", "init_alpha": 1.5}
    model = Logits(tiny_model(kind, adasparse.SparsityConfig(**made)))
    run = session_of(to_onnx(model, padded_batch(2, 9), dynamic_shapes=TOKENS))
    for b, n in ((2, 9), (1, 1), (2, 17), (3, 9), (5, 40)):
        ids, mask = padded_batch(b, n, seed=n)
        with torch.no_grad():
            expected = model(ids, mask)
        error = (run(ids, mask) - expected).abs()[mask.bool()].max()
        assert error <= BAR * max(1.0, expected.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_export_of_a_sparse_model(kind):
    model = Logits(tiny_model(kind, adasparse.SparsityConfig()))
    program = saved_and_loaded(exported(model, padded_batch(2, 9), TOKENS))
    for b, n in ((2, 9), (3, 17)):
        batch = padded_batch(b, n, seed=n)
        with torch.no_grad():
            torch.testing.assert_close(program.module()(*batch), model(*batch))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["entmax", "attention", "module", "llama", "bert"])
def test_ahead_of_time_compilation(which, tmp_path):
    torch.manual_seed(0)
    module, inputs, shapes, other = {
        "entmax": lambda: (
            Weigh(1.3), (torch.randn(3, 7),), ({1: Dim.DYNAMIC},), (torch.randn(3, 12),),
        ),
        "attention": lambda: (
            Attend(is_causal=True), qkv(q=7), LENGTHS, qkv(q=11, k=11),
        ),
        "module": lambda: (
            adasparse.nn.EntmaxAttention(4).eval(), qkv(q=7), LENGTHS, qkv(b=3, q=11, k=11),
        ),
        "llama": lambda: (
            Logits(tiny_model("llama", adasparse.SparsityConfig())),
            padded_batch(2, 9), TOKENS, padded_batch(3, 17),
        ),
        "bert": lambda: (
            Logits(tiny_model("bert", adasparse.SparsityConfig())),
            padded_batch(2, 9), TOKENS, padded_batch(3, 17),
        ),
    }[which]()  # fmt: skip
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=shapes)
        package = str(tmp_path / "model.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=package)
        run = torch._inductor.aoti_load_package(package)
        torch.testing.assert_close(run(*other), module(*other), atol=1e-5, rtol=1e-5)
