"""Attention inside PyTorch: dropout, threads, compilation, autocast, checkpoints, DDP."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils.checkpoint import checkpoint

from adasparse import entmax_attention
from adasparse.kernels import cpu
from adasparse.kernels.problem import AttentionProblem, field_names
from adasparse.kernels.torch import dropout_factors
from support.attention_case import actual, check, problem_of, tensors
from support.helpers import BACKENDS, assert_near, backward_distributed, randn

both = pytest.mark.parametrize("backend", BACKENDS)
native = pytest.mark.skipif(not cpu.is_available(), reason="needs the compiled kernels")


def hashed(seed, row, column):
    """The 32 bits that decide on one weight, in integers of any size."""
    low, all64 = 2**32 - 1, 2**64 - 1
    x = (seed + (row + 1) * 0x9E3779B97F4A7C15) & all64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & all64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & all64
    x ^= x >> 31
    y = (column * 0x9E3779B1 + x) & low
    y = ((y ^ y >> 16) * 0x85EBCA6B) & low
    y ^= x >> 32
    y = ((y ^ y >> 13) * 0xC2B2AE35) & low
    return y ^ y >> 16


@pytest.mark.parametrize("seed", [0, 1, 2**62 - 1])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropout_is_the_documented_hash(p, seed):
    x = tensors(2, 3, 5, 7, 4)
    problem = problem_of(*x, dropout_p=p)
    object.__setattr__(problem, "seed", torch.tensor(seed))
    factors = dropout_factors(problem).reshape(-1, 7)
    for row in range(len(factors)):
        for column in range(7):
            is_kept = hashed(seed, row, column) >= int(p * 2**32)
            assert factors[row, column].item() == pytest.approx(is_kept / (1 - p))


@both
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(p, backend):
    query, key = torch.zeros(2, 4, 64, 1), torch.zeros(2, 4, 100, 1)
    value = torch.eye(100).expand(2, 4, 100, 100)
    torch.manual_seed(3)
    weights = entmax_attention(query, key, value, dropout_p=p, backend=backend)
    kept = weights > 0
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.01)
    assert weights.sum(-1).mean().item() == pytest.approx(1, abs=0.05)
    # Neither rows nor columns nor heads go together.
    for dim in ((0, 1, 2), (0, 1, 3), (2, 3)):
        assert (kept.float().mean(dim) - (1 - p)).abs().max() < 0.25
    a = (kept[..., 1:] ^ kept[..., :-1]).float().mean().item()
    b = (kept[:, :, 1:] ^ kept[:, :, :-1]).float().mean().item()
    assert a == pytest.approx(2 * p * (1 - p), abs=0.02)
    assert b == pytest.approx(2 * p * (1 - p), abs=0.02)


@both
def test_dropout_follows_the_seed_of_pytorch(backend):
    def run():
        return entmax_attention(*tensors(), dropout_p=0.5, backend=backend)

    torch.manual_seed(5)
    first, second = run(), run()
    torch.manual_seed(5)
    assert torch.equal(run(), first)
    assert torch.equal(run(), second)
    assert not torch.equal(first, second)


def test_without_dropout_the_generator_stays_where_it_is():
    before = torch.get_rng_state()
    entmax_attention(*tensors())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_dropout_agrees_with_reference(alpha, p):
    alpha = torch.tensor(alpha)
    if p < 1:
        check(*tensors(2, 3, 20, 300, 8), dropout_p=p, alpha=alpha, backends=BACKENDS)
        return
    for backend in BACKENDS:
        found = actual(*tensors(), randn((2, 3, 7, 8)), dropout_p=p, alpha=alpha, backend=backend)
        assert all((x == 0).all() for x in found.values())


@both
def test_dropout_gradients(backend):
    def run(*x):
        torch.manual_seed(8)
        return entmax_attention(*x, dropout_p=0.4, backend=backend)

    x = tensors(1, 2, 5, 7, 3, dtype=torch.float64)
    assert gradcheck(run, [t.requires_grad_() for t in x])


def results(sizes, **options):
    """Output and gradients of the compiled kernel with everything switched on."""
    b, h, q, k, d = sizes
    return actual(
        *tensors(b, h, q, k, d, g=1),
        randn((b, h, q, d), seed=9),
        alpha=torch.linspace(1.0, 1.9, h),
        attn_mask=randn((q, k), seed=4),
        alibi_slopes=torch.full((h,), 0.01),
        enable_gqa=True,
        dropout_p=0.1,
        backend="cpu",
        **options,
    )


@native
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 2, 200, 300, 16), (3, 4, 17, 24, 8), (1, 1, 3, 1000, 64)], ids=str
)
def test_threads_do_not_change_a_bit(sizes, is_causal):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        wanted = results(sizes, is_causal=is_causal)
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            for _ in range(2):
                found = results(sizes, is_causal=is_causal)
                for name, x in wanted.items():
                    assert torch.equal(found[name], x), f"{name} with {threads} threads"
    finally:
        torch.set_num_threads(before)


@native
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_head_with_much_support_does_not_depend_on_the_others(is_causal):
    # More entries than are walked at a time, so that heads are summed up in several parts.
    x = (*tensors(1, 3, 900, 900, 16), randn((1, 3, 900, 16), seed=9))
    options = {"alpha": torch.full((1,), 1.4), "scale": 0.03, "is_causal": is_causal}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [actual(*(t[:, [h]] for t in x), backend="cpu", **options) for h in range(3)]
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            together = actual(*x, backend="cpu", **options)
            for name in ("output", "query", "key", "value"):
                wanted = torch.cat([found[name] for found in alone], 1)
                assert torch.equal(together[name], wanted), f"{name} with {threads} threads"
    finally:
        torch.set_num_threads(before)


@native
def test_sums_over_very_many_rows_do_not_go_by_threads():
    # PyTorch's own sum of more than 32768 numbers does.
    def run():
        leaves = {
            "alpha": torch.tensor([1.4], dtype=torch.float64),
            "alibi_slopes": torch.tensor([0.1], dtype=torch.float64),
        }
        x = tensors(1, 1, 200_000, 3, 2)
        return actual(*x, randn((1, 1, 200_000, 2), seed=9), **leaves, backend="cpu")

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        wanted = run()
        for threads in (2, 3, 5):
            torch.set_num_threads(threads)
            found = run()
            for name, x in wanted.items():
                assert torch.equal(found[name], x), f"{name} with {threads} threads"
    finally:
        torch.set_num_threads(before)


@both
def test_called_from_several_threads(backend):
    def run(seed):
        x = tensors(1, 2, 60, 200, 16, seed=seed)
        return actual(*x, randn((1, 2, 60, 16)), alpha=torch.tensor([1.0, 1.6]), backend=backend)

    wanted = [run(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        for found, expected in zip(pool.map(run, range(6)), wanted, strict=True):
            for name, x in expected.items():
                assert torch.equal(found[name], x)


@both
def test_compiles_without_a_break(backend):
    def run(query, key, value, alpha, mask, slopes):
        return entmax_attention(
            2 * query,
            key,
            value.sin(),
            alpha=alpha,
            attn_mask=mask,
            is_causal=True,
            alibi_slopes=slopes,
            enable_gqa=True,
            backend=backend,
        ).square()

    x = [*tensors(2, 4, 7, 11, 8, g=2), torch.tensor([1.2, 1.4, 1.6, 1.0]), randn((7, 11))]
    x.append(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    x = [t.requires_grad_() for t in x]
    # Inductor once: it takes seconds to compile what "torch" is made of.
    compiler = "inductor" if backend == "cpu" else "aot_eager"
    output = torch.compile(run, fullgraph=True, backend=compiler)(*x)
    wanted = run(*x)
    assert_near(output, wanted, scale=10)
    found = torch.autograd.grad(output.sum(), x)
    for actual_grad, expected_grad in zip(found, torch.autograd.grad(wanted.sum(), x), strict=True):
        assert_near(actual_grad, expected_grad, scale=100)


def test_compiles_with_dropout_and_lengths():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(query, key, value, lengths, mask):
        return entmax_attention(
            query, key, value, key_lengths=lengths, attn_mask=mask, dropout_p=0.5
        )

    query, key, _ = tensors(2, 3, 7, 11, 8)
    value = torch.eye(11).expand(2, 3, 11, 11)
    lengths, mask = torch.tensor([5, 11]), torch.ones(11, dtype=torch.bool)
    key.requires_grad_()
    torch.manual_seed(1)
    weights = run(query, key, value, lengths, mask)
    torch.manual_seed(1)
    again = run(query, key, value, lengths, mask)
    assert torch.equal(weights, again)
    assert not torch.equal(run(query, key, value, lengths, mask), weights)
    whole = entmax_attention(query, key, value, key_lengths=lengths)
    kept = weights > 0
    assert_near(weights[kept], 2 * whole[kept], scale=2)
    # A dropped weight is dropped in the backward as well.
    gradient = torch.autograd.grad(again[~kept].sum(), key)[0]
    assert (gradient == 0).all()


@native
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["bare", "all", "half"])
def test_registered_operators_pass_opcheck(kind):
    dtype = torch.bfloat16 if kind == "half" else torch.float32
    x = [t.requires_grad_() for t in tensors(2, 4, 5, 6, 8, g=2, dtype=dtype)]
    alpha = torch.tensor([1.2, 1.4, 1.6, 1.0], requires_grad=True)
    options = {"is_causal": True, "window_left": 3}
    if kind == "all":
        options = {
            "mask": randn((1, 1, 5, 6)).requires_grad_(),
            "slopes": torch.full((4,), 0.1, requires_grad=True),
            "key_lengths": torch.tensor([4, 6]),
            "seed": torch.tensor(12345),
            "dropout_p": 0.5,
        }
    query, key, value = x
    problem = AttentionProblem(query=query, key=key, value=value, alpha=alpha, scale=0.3, **options)
    arguments = (*(getattr(problem, name) for name in field_names(AttentionProblem)), "cpu")
    torch.library.opcheck(torch.ops.adasparse.entmax_attention.default, arguments)
    needs = "query key value alpha" + (" mask slopes" if kind == "all" else "")
    grad = randn((2, 4, 5, 8), dtype=dtype)
    backward = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in arguments)
    torch.library.opcheck(
        torch.ops.adasparse.entmax_attention_backward.default,
        (grad, needs, *backward),
    )


def test_meta_and_fake_tensors_have_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = [torch.empty(2, 3, n, 4, device="meta") for n in (5, 6, 6)]
    assert entmax_attention(*x).shape == (2, 3, 5, 4)
    with FakeTensorMode():
        for backend in BACKENDS:
            x = [torch.empty(2, 3, n, 4, requires_grad=True) for n in (5, 6, 6)]
            output = entmax_attention(*x, attn_mask=torch.ones(6).bool(), backend=backend)
            assert output.shape == (2, 3, 5, 4)
            output.sum().backward()
            assert x[0].grad.shape == x[0].shape


@both
def test_vmap_and_grad(backend):
    query, key, value = (t[:, 0] for t in tensors(4, 1, 3, 5, 6, dtype=torch.float64))
    alphas = torch.tensor([1.1, 1.5, 1.9, 2.0], dtype=torch.float64)

    def run(q, k, v, a):
        return entmax_attention(q, k, v, alpha=a, is_causal=True, backend=backend)

    wanted = torch.stack([run(*x) for x in zip(query, key, value, alphas, strict=True)])
    assert_near(torch.func.vmap(run)(query, key, value, alphas), wanted)
    by = torch.func.vmap(torch.func.grad(lambda *x: run(*x).square().sum(), argnums=(0, 1, 2, 3)))(
        query, key, value, alphas
    )
    for i in range(4):
        x = [t[i].clone().requires_grad_() for t in (query, key, value, alphas)]
        expected = torch.autograd.grad(run(*x).square().sum(), x)
        for found, want in zip(by, expected, strict=True):
            assert_near(found[i], want, scale=100)


@both
def test_autocast_does_to_it_what_it_does_to_softmax_attention(backend):
    x = [t.requires_grad_() for t in tensors()]
    mask = randn((7, 11))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = entmax_attention(*x, attn_mask=mask, backend=backend)
        softmax = torch.nn.functional.scaled_dot_product_attention(*x)
    assert output.dtype == softmax.dtype == torch.bfloat16
    output.sum().backward()
    rounded = [t.detach().bfloat16().requires_grad_() for t in x]
    wanted = entmax_attention(*rounded, attn_mask=mask, backend=backend)
    assert torch.equal(output, wanted)
    wanted.sum().backward()
    for t, half in zip(x, rounded, strict=True):
        assert t.grad.dtype == torch.float32
        assert torch.equal(t.grad, half.grad.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        double = entmax_attention(*(t.detach().double() for t in x), backend=backend)
    assert double.dtype == torch.float64


@both
def test_checkpoint(backend):
    def run(*x):
        return entmax_attention(*x, is_causal=True, dropout_p=0.3, backend=backend).tanh()

    x = [t.requires_grad_() for t in tensors()]
    torch.manual_seed(0)
    wanted = torch.autograd.grad(run(*x).sum(), x)
    torch.manual_seed(0)
    found = torch.autograd.grad(checkpoint(run, *x, use_reentrant=False).sum(), x)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@both
def test_what_is_saved_can_be_moved_away(backend):
    x = [t.requires_grad_() for t in tensors()]
    moved = []

    def pack(tensor):
        moved.append(tensor)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = entmax_attention(*x, backend=backend)
    assert moved
    found = torch.autograd.grad(output.sum(), x)
    wanted = torch.autograd.grad(entmax_attention(*x, backend=backend).sum(), x)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@both
def test_without_gradients(backend):
    x = [t.requires_grad_() for t in tensors()]
    wanted = entmax_attention(*x, backend=backend)
    assert wanted.requires_grad
    with torch.no_grad():
        output = entmax_attention(*x, backend=backend)
        assert not output.requires_grad
        assert torch.equal(output, wanted)
    with torch.inference_mode():
        assert torch.equal(entmax_attention(*x, backend=backend), wanted)


@both
def test_changed_inputs_are_noticed(backend):
    x = [t.requires_grad_() for t in tensors()]
    key = x[1] * 1
    output = entmax_attention(x[0], key, x[2], backend=backend)
    key.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


class Layer(torch.nn.Module):
    def __init__(self, backend):
        super().__init__()
        torch.manual_seed(0)
        self.project = torch.nn.Linear(8, 24)
        self.alpha = torch.nn.Parameter(torch.tensor([1.3, 1.6]))
        self.backend = backend

    def forward(self, x):
        heads = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        output = entmax_attention(*heads, alpha=self.alpha, backend=self.backend)
        return output.transpose(1, 2).flatten(2)


@both
def test_distributed_data_parallel(backend, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("PyTorch was built without distributed")
    alone, layer = Layer(backend), Layer(backend)
    x = randn((3, 5, 8))
    for _ in range(2):
        alone(x).square().sum().backward()
    backward_distributed(layer, lambda model: model(x).square().sum(), tmp_path)
    for a, b in zip(alone.parameters(), layer.parameters(), strict=True):
        assert a.grad.abs().sum() > 0
        assert torch.equal(a.grad, b.grad)
