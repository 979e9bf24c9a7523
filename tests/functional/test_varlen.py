"""Attention in packed batches."""

import inspect
import math

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch.nn.functional import scaled_dot_product_attention

from adasparse import entmax_attention, entmax_attention_varlen
from adasparse.kernels import packed, reference
from adasparse.kernels.problem import AttentionProblem, field_names
from support.attention_case import SEED
from support.helpers import BACKENDS, randn
from support.tolerances import ATTENTION

ALPHAS = [1.0, 1 + 1e-6, 1.05, 1.5, 2.0, 3.0]
#: Numbers of queries and keys of the sequences of a batch.
SAME = ([1, 0, 2, 17, 64, 66], [1, 0, 2, 17, 64, 66])
MORE_KEYS = ([0, 1, 1, 3, 5, 13], [0, 1, 7, 3, 70, 150])
FEWER_KEYS = ([3, 7, 2, 40, 0], [2, 0, 2, 11, 5])
BATCHES = {"same": SAME, "more keys": MORE_KEYS, "fewer keys": FEWER_KEYS}
batches = pytest.mark.parametrize("lengths", BATCHES.values(), ids=list(BATCHES))


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def packed_tensors(lengths, h=4, g=2, d=16, e=None, dtype=torch.float32, seed=0):
    q, k = map(sum, lengths)
    return (
        randn((q, h, d), dtype=dtype, seed=seed),
        randn((k, g, d), dtype=dtype, seed=seed + 1),
        randn((k, g, e or d), dtype=dtype, seed=seed + 2),
    )


def problem_of(x, lengths, *, alpha, dropout_p=0.0, window=(None, None), **options):
    """The problem that the reference gets, in float64."""
    query, key, value = (t.detach().transpose(0, 1)[None] for t in x)
    alpha = torch.as_tensor(alpha, dtype=torch.float64).detach()
    torch.manual_seed(SEED)
    slopes, sinks = options.pop("alibi_slopes", None), options.pop("sinks", None)
    return AttentionProblem(
        query=query,
        key=key,
        value=value,
        alpha=alpha.reshape(1, -1, 1, 1) if alpha.dim() < 2 else alpha.transpose(0, 1)[None],
        scale=1 / math.sqrt(query.shape[-1]),
        cu_seq_q=offsets(lengths[0]),
        cu_seq_k=offsets(lengths[1]),
        key_lengths=options.pop("seqused_k", None),
        seed=torch.randint(0, 2**62, ()) if dropout_p else None,
        dropout_p=dropout_p,
        slopes=None if slopes is None else slopes.detach().double(),
        sinks=None if sinks is None else sinks.detach().double(),
        window_left=window[0],
        window_right=window[1],
        **options,
    )


def check(x, lengths, *, backends=BACKENDS, slack=1.0, **options):
    """Compare output and all gradients with the reference."""
    grad = randn((*x[0].shape[:2], x[2].shape[2]), dtype=x[0].dtype, seed=99)
    problem = problem_of(x, lengths, **options)
    wanted, saved = reference.attention_forward(problem, keep=True)
    by = reference.attention_backward(problem, saved, grad.transpose(0, 1)[None].double())
    wanted = {"output": wanted[0].transpose(0, 1)}
    wanted |= {name: getattr(by, name)[0].transpose(0, 1) for name in ("query", "key", "value")}
    names = {"alpha": "alpha", "alibi_slopes": "slopes", "sinks": "sinks"}
    for backend in backends:
        leaves = dict(zip(("query", "key", "value"), x, strict=True))
        given = {k: v for k, v in options.items() if k in names and isinstance(v, torch.Tensor)}
        leaves = {k: v.detach().requires_grad_() for k, v in {**leaves, **given}.items()}
        torch.manual_seed(SEED)
        output = entmax_attention_varlen(
            **{**options, **leaves},
            cu_seq_q=offsets(lengths[0]),
            cu_seq_k=offsets(lengths[1]),
            max_q=max(lengths[0]),
            max_k=max(lengths[1]),
            enable_gqa=True,
            backend=backend,
        )
        found = dict(
            zip(leaves, torch.autograd.grad(output, list(leaves.values()), grad), strict=True)
        )
        for name, gradient in {"output": output.detach(), **found}.items():
            target = wanted.get(name)
            if target is None:
                target = getattr(by, names[name])
                target = target[0].transpose(0, 1) if target.dim() == 4 else target
                target = target.reshape(gradient.shape)
            error = (gradient.double() - target).abs().max().item() if target.numel() else 0.0
            size = max(t.abs().max().item() for t in wanted.values())
            assert error <= slack * ATTENTION[x[0].dtype] * size, (backend, name, error)


@pytest.mark.parametrize("alpha", ALPHAS)
@batches
def test_agrees_with_the_reference(lengths, alpha):
    dtype = torch.float64 if alpha > 2 else torch.float32
    alphas = torch.full((4,), alpha, dtype=dtype)
    check(packed_tensors(lengths, dtype=dtype), lengths, alpha=alphas, slack=5)


@pytest.mark.parametrize("window", [(None, 0), (3, 0), (2, 5), (0, None)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@batches
def test_windows_agree_with_the_reference(lengths, is_causal, window):
    check(packed_tensors(lengths), lengths, alpha=1.3, is_causal=is_causal, window=window)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.5, 2.0])
@batches
def test_agrees_with_the_reference_with_every_option(lengths, alpha):
    check(
        packed_tensors(lengths, d=13, e=5),
        lengths,
        alpha=torch.tensor([alpha, 1.0, 1.5, 1.7]),
        is_causal=True,
        window=(40, None),
        dropout_p=0.3,
        softcap=3.0,
        sinks=torch.tensor([0.1, 2.0, -1.0, 0.0]),
        alibi_slopes=torch.tensor([0.0, 0.1, 0.01, 0.3]),
        seqused_k=torch.tensor([max(k - 1, 0) for k in lengths[1]]),
        slack=5,
    )


def test_one_alpha_per_token():
    alpha = 1 + torch.rand(sum(SAME[0]), 4, 1, dtype=torch.float64)
    x = packed_tensors(SAME, dtype=torch.float64)
    check(x, SAME, alpha=alpha, is_causal=True, slack=100)


@pytest.mark.parametrize("backend", BACKENDS)
def test_is_the_same_call_for_each_sequence(backend):
    x = packed_tensors(SAME, g=4)
    options = {"alpha": 1.5, "is_causal": True, "backend": backend}
    found = entmax_attention_varlen(*x, cu_seq_q=offsets(SAME[0]), **options)
    for sequence, output in zip(
        zip(*(t.split(SAME[0]) for t in x), strict=True), found.split(SAME[0]), strict=True
    ):
        alone = entmax_attention(*(t.transpose(0, 1) for t in sequence), **options)
        assert torch.equal(output, alone.transpose(0, 1))


@batches
def test_at_alpha_1_it_is_softmax_attention_aligned_to_the_end(lengths):
    """The meaning of torch's varlen_attn, which runs on CUDA alone."""
    x = packed_tensors(lengths, g=4)
    found = entmax_attention_varlen(
        *x, cu_seq_q=offsets(lengths[0]), cu_seq_k=offsets(lengths[1]), alpha=1.0, window=(-1, 0)
    )
    parts = zip(x[0].split(lengths[0]), *(t.split(lengths[1]) for t in x[1:]), strict=True)
    for (query, key, value), output in zip(parts, found.split(lengths[0]), strict=True):
        q, k = len(query), len(key)
        mask = torch.arange(k) <= torch.arange(q).unsqueeze(-1) + k - q
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        sdpa = scaled_dot_product_attention(query, key, value, attn_mask=mask).nan_to_num()
        sdpa = torch.where(mask.any(-1, keepdim=True), sdpa, 0.0)
        torch.testing.assert_close(output, sdpa.transpose(0, 1), rtol=1e-4, atol=1e-5)


def test_takes_the_arguments_of_varlen_attn_in_their_order():
    names = [*inspect.signature(entmax_attention_varlen).parameters.values()]
    positional = [x.name for x in names if x.kind is x.POSITIONAL_OR_KEYWORD]
    assert positional == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    x, places = packed_tensors(SAME, g=4), offsets(SAME[0])
    wanted = entmax_attention_varlen(*x, cu_seq_q=places)
    longest = max(SAME[0])
    for given in (longest, torch.tensor(longest), np.int64(longest)):
        for integers in (places, places.long()):
            found = entmax_attention_varlen(*x, integers, integers, given, given)
            assert torch.equal(found, wanted)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_pointed_to_packed_ones():
    """The error of ``entmax_attention`` says what to pass, and that does it."""
    rows = packed_tensors(SAME, g=4)
    nested = [torch.nested.nested_tensor_from_jagged(t, offsets(SAME[0]).long()) for t in rows]
    with pytest.raises(
        TypeError, match=r"got a nested one.*values\(\) and offsets\(\) to entmax_att"
    ):
        entmax_attention(*(t.transpose(1, 2) for t in nested))
    found = entmax_attention_varlen(*(t.values() for t in nested), nested[0].offsets())
    assert torch.equal(found, entmax_attention_varlen(*rows, offsets(SAME[0])))


def test_is_the_padded_call():
    lengths = [5, 80, 33]
    x = packed_tensors((lengths, lengths), g=4)
    found = entmax_attention_varlen(*x, cu_seq_q=offsets(lengths), is_causal=True)
    padded = (
        torch.nn.utils.rnn.pad_sequence(t.split(lengths), batch_first=True).transpose(1, 2)
        for t in x
    )
    output = entmax_attention(*padded, is_causal=True, key_lengths=torch.tensor(lengths))
    for i, (n, mine) in enumerate(zip(lengths, found.split(lengths), strict=True)):
        torch.testing.assert_close(mine, output[i, :, :n].transpose(0, 1), rtol=1e-5, atol=1e-6)


def paged(x, lengths, page_size, seed=0):
    """Spread packed keys over pages in a random order; return the pages and their table."""
    pages = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(pages) + 3, generator=torch.Generator().manual_seed(seed))
    table = torch.full((len(lengths), max(pages)), -1, dtype=torch.int32)
    pool = torch.full((len(order), page_size, *x.shape[1:]), math.nan, dtype=x.dtype)
    used = 0
    for s, (n, keys) in enumerate(zip(lengths, x.split(lengths), strict=True)):
        table[s, : pages[s]] = order[used : used + pages[s]]
        for i, part in enumerate(keys.split(page_size)):
            pool[table[s, i], : len(part)] = part
        used += pages[s] if n else 0
    return pool, table


@pytest.mark.parametrize("page_size", [1, 16, 256])
@pytest.mark.parametrize("backend", BACKENDS)
def test_pages_hold_the_same_keys(backend, page_size):
    lengths = ([1, 1, 2, 1, 1], [1, 70, 300, 16, 0])
    query, key, value = packed_tensors(lengths)
    (keys, table), (values, _) = (paged(t, lengths[1], page_size) for t in (key, value))
    options = {"alpha": 1.4, "is_causal": True, "enable_gqa": True, "backend": backend}
    options |= {"sinks": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    found = entmax_attention_varlen(
        query,
        keys,
        values,
        cu_seq_q=offsets(lengths[0]),
        seqused_k=torch.tensor(lengths[1]),
        block_table=table,
        **options,
    )
    wanted = entmax_attention_varlen(
        query, key, value, cu_seq_q=offsets(lengths[0]), cu_seq_k=offsets(lengths[1]), **options
    )
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_neighboring_pages_are_read_in_place():
    key = randn((40, 2, 16))
    query = randn((1, 2, 16), seed=1)
    found = entmax_attention_varlen(
        query,
        key.view(5, 8, 2, 16),
        key.view(5, 8, 2, 16),
        cu_seq_q=torch.tensor([0, 1]),
        seqused_k=torch.tensor([27]),
        block_table=torch.tensor([[1, 2, 3, 4]]),
    )
    own = key[8:35]
    wanted = entmax_attention_varlen(
        query, own, own, cu_seq_q=torch.tensor([0, 1]), cu_seq_k=torch.tensor([0, 27])
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype):
    x = packed_tensors(SAME, dtype=dtype)
    wanted, _ = reference.attention_forward(problem_of(x, SAME, alpha=1.5), keep=False)
    found = entmax_attention_varlen(*x, cu_seq_q=offsets(SAME[0]), enable_gqa=True)
    assert found.dtype == dtype
    error = (found.double() - wanted[0].transpose(0, 1)).abs().max()
    assert error < torch.finfo(dtype).eps * wanted.abs().max()


def test_autocast():
    x = packed_tensors(SAME, g=4)
    with torch.autocast("cpu", torch.bfloat16):
        found = entmax_attention_varlen(*x, cu_seq_q=offsets(SAME[0]))
    assert found.dtype == torch.bfloat16


def test_results_do_not_depend_on_threads(set_threads):
    lengths = [3, 500, 40, 17, 0, 90]
    x = [t.requires_grad_() for t in packed_tensors((lengths, lengths), h=2, g=2)]
    alpha = torch.tensor([1.0, 1.5], requires_grad=True)
    results = []
    for count in (1, 2, 5):
        set_threads(count)
        output = entmax_attention_varlen(*x, cu_seq_q=offsets(lengths), alpha=alpha, is_causal=True)
        results.append((output, *torch.autograd.grad(output.sin().sum(), [*x, alpha])))
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            assert torch.equal(a, b)


def test_keys_that_no_sequence_uses_never_matter():
    lengths = ([3, 5], [4, 6])
    x = packed_tensors(lengths, g=4)
    for t in x[1:]:
        t[3], t[8:] = math.nan, math.nan
    x = [t.requires_grad_() for t in x]
    output = entmax_attention_varlen(
        *x,
        cu_seq_q=offsets(lengths[0]),
        cu_seq_k=offsets(lengths[1]),
        seqused_k=torch.tensor([3, 4]),
        is_causal=True,
    )
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(output.sum(), x):
        assert gradient.isfinite().all()
    assert not torch.autograd.grad(
        entmax_attention_varlen(
            *x,
            cu_seq_q=offsets(lengths[0]),
            cu_seq_k=offsets(lengths[1]),
            seqused_k=torch.tensor([3, 4]),
        ).sum(),
        x[1],
    )[0][8:].any()


def test_higher_derivatives_and_transforms():
    lengths = ([2, 0, 3], [2, 1, 3])
    x = [t.requires_grad_() for t in packed_tensors(lengths, h=2, g=2, d=3, dtype=torch.float64)]
    options = {"cu_seq_q": offsets(lengths[0]), "cu_seq_k": offsets(lengths[1]), "alpha": 1.3}

    def run(*x):
        return entmax_attention_varlen(*x, is_causal=True, **options)

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)
    plain = tuple(t.detach() for t in x)
    directions = tuple(torch.ones_like(t) for t in plain)
    _, tangent = torch.func.jvp(run, plain, directions)
    ahead, behind = (
        run(*(t + s * 1e-6 * d for t, d in zip(plain, directions, strict=True))) for s in (1, -1)
    )
    torch.testing.assert_close(tangent, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-7)
    many = torch.vmap(lambda query: run(query, *plain[1:]))(torch.stack((plain[0], 2 * plain[0])))
    torch.testing.assert_close(many[1], run(2 * plain[0], *plain[1:]))


def assert_same(found, wanted, leaves):
    """Outputs and their gradients agree."""
    torch.testing.assert_close(found, wanted)
    for a, b in zip(
        torch.autograd.grad(found.sin().sum(), leaves),
        torch.autograd.grad(wanted.sin().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_in_one_graph(backend):
    x = [t.requires_grad_() for t in packed_tensors(MORE_KEYS)]
    options = {
        "cu_seq_q": offsets(MORE_KEYS[0]),
        "cu_seq_k": offsets(MORE_KEYS[1]),
        "max_q": 13,
        "max_k": 150,
        "enable_gqa": True,
        "is_causal": True,
        "sinks": torch.zeros(4, requires_grad=True),
        "backend": backend,
    }
    compiled = torch.compile(entmax_attention_varlen, fullgraph=True, backend="aot_eager")
    leaves = [*x, options["sinks"]]
    wanted = entmax_attention_varlen(*x, **options)
    found = compiled(*x, **options)
    assert_same(found, wanted, leaves)


def test_one_graph_serves_batches_of_any_sizes():
    """The number of sequences and the longest of them were constants of the graph."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(entmax_attention_varlen, fullgraph=True, dynamic=True, backend=counter)
    counts = set()
    for lengths in ([3, 7, 4, 0, 1], [10, 4], [2, 2, 3, 0, 5, 8], [33, 6, 9]):
        x = [t.requires_grad_() for t in packed_tensors((lengths, lengths), g=4)]
        given = (offsets(lengths), offsets(lengths), max(lengths), max(lengths))
        found = compiled(*x, *given, is_causal=True)
        wanted = entmax_attention_varlen(*x, *given, is_causal=True)
        assert_same(found, wanted, x)
        counts.add(counter.frame_count)
    assert len(counts) == 1


def test_exports():
    class Module(torch.nn.Module):
        def forward(self, x, offsets):
            return entmax_attention_varlen(x, x, x, cu_seq_q=offsets, max_q=130, max_k=130)

    x = packed_tensors(SAME)[0]
    program = torch.export.export(Module(), (x, offsets(SAME[0])))
    other = offsets([130, 0, 2, 17, 0, 1])
    torch.testing.assert_close(
        program.module()(x, other), entmax_attention_varlen(x, x, x, cu_seq_q=other)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_registered_operators_pass_opcheck():
    x = [t.requires_grad_() for t in packed_tensors(MORE_KEYS)]
    problem = problem_of(x, MORE_KEYS, alpha=1.5, max_q=13, max_k=150, softcap=2.0)
    tensors = {
        name: t.transpose(0, 1)[None] for name, t in zip(("query", "key", "value"), x, strict=True)
    }
    sinks = torch.zeros(4, requires_grad=True)
    values = {**vars(problem), **tensors, "sinks": sinks, "alpha": torch.tensor(1.5)}
    arguments = (*(values[name] for name in field_names(AttentionProblem)), BACKENDS[0])
    torch.library.opcheck(torch.ops.adasparse.entmax_attention.default, arguments)
    backward = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in arguments)
    grad = randn((1, 4, 23, 16))
    torch.library.opcheck(
        torch.ops.adasparse.entmax_attention_backward.default,
        (grad, "query key value sinks", *backward),
    )


def call(**changes):
    x = packed_tensors(([3, 4], [5, 2]))
    arguments = dict(zip(("query", "key", "value"), x, strict=True))
    options = {"cu_seq_q": torch.tensor([0, 3, 7]), "cu_seq_k": torch.tensor([0, 5, 7])}
    return entmax_attention_varlen(**{**arguments, **options, "enable_gqa": True, **changes})


PAGES = {
    "key": torch.zeros(6, 4, 2, 16),
    "value": torch.zeros(6, 4, 2, 16),
    "cu_seq_k": None,
    "seqused_k": torch.tensor([5, 8]),
    "block_table": torch.tensor([[0, 1], [2, 3]]),
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"cu_seq_q": torch.tensor([0, 5, 3, 7])}, ValueError, r"got \(4,\) and \(3,\)"),
        ({"cu_seq_q": torch.tensor([0, 8, 7])}, ValueError, r"never fall and end at 7.*0, 8, 7"),
        ({"cu_seq_q": torch.tensor([0, 3, 6])}, ValueError, r"cu_seq_q .* end at 7.*0, 3, 6"),
        ({"cu_seq_k": torch.tensor([1, 3, 7])}, ValueError, r"cu_seq_k must start at 0.*1, 3, 7"),
        ({"cu_seq_q": torch.tensor([0.0, 3, 7])}, TypeError, "int32 or int64; got torch.float32"),
        ({"cu_seq_q": [0, 3, 7]}, TypeError, "cu_seq_q must be a tensor.*got list"),
        ({"cu_seq_q": torch.tensor([[0, 3, 7]])}, ValueError, r"rank 1; got the shape \(1, 3\)"),
        ({"cu_seq_q": torch.tensor([0]), "cu_seq_k": None}, ValueError, "one or more; got"),
        ({"max_q": 3}, ValueError, "max_q must be at least the longest sequence, 4; got 3"),
        ({"max_k": 4}, ValueError, "max_k must be at least the longest sequence, 5; got 4"),
        ({"max_k": 4.5}, TypeError, "max_k must be an integer; got float"),
        ({"max_q": -1}, ValueError, "max_q must not be negative; got -1"),
        ({"enable_gqa": False}, ValueError, "got 4 and 2. With enable_gqa=True, heads of query"),
        ({"query": torch.zeros(7, 3, 16)}, ValueError, "got 3 and 2. With enable_gqa=True, those"),
        ({"query": torch.zeros(7, 4, 8)}, ValueError, "agree on d; got 8 and 16"),
        (
            {"query": torch.zeros(1, 4, 7, 16)},
            ValueError,
            r"\(total_q, h, d\).*got \(1, 4, 7, 16\)",
        ),
        (
            {"value": torch.zeros(6, 2, 16)},
            ValueError,
            r"agree on all sizes but the last.*\(2, 6\)",
        ),
        ({"seqused_k": torch.tensor([6, 1])}, ValueError, "from 0 to .* 5 for sequence 0; got 6"),
        ({"seqused_k": torch.tensor([1])}, ValueError, r"seqused_k must have the shape \(2,\)"),
        ({"window": (-2, 0)}, ValueError, "window must be a pair"),
        ({"alpha": torch.full((7, 3), 1.5)}, ValueError, r"broadcast to \(7, 4, 1\); got \(7, 3\)"),
        ({"alpha": 0.5}, ValueError, "alpha must be at least 1"),
        ({"sinks": torch.zeros(2)}, ValueError, r"sinks must have the shape \(4,\)"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p must be from 0 to 1; got 1.5"),
        ({**PAGES, "seqused_k": None}, ValueError, "block_table requires seqused_k"),
        ({**PAGES, "seqused_k": torch.tensor([5, 9])}, ValueError, "8 for sequence 1; got 9"),
        ({**PAGES, "cu_seq_k": torch.tensor([0, 5, 7])}, ValueError, "cu_seq_k must be None with"),
        (
            {**PAGES, "block_table": torch.tensor([[0, 1], [2, 6]])},
            ValueError,
            "pages from 0 to 5; got 6 for sequence 1",
        ),
        ({**PAGES, "block_table": torch.tensor([[0, 1]])}, ValueError, r"shape \(2, pages\)"),
        ({**PAGES, "key": torch.zeros(6, 4, 2, 16, requires_grad=True)}, ValueError, "inference"),
        ({"block_table": PAGES["block_table"]}, ValueError, r"\(total_pages, page_size, h, d\)"),
        ({"backend": "none"}, ValueError, "backend must be one of"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_bad_arguments(changes, error, message):
    with pytest.raises(error, match=message):
        call(**changes)


def test_good_arguments():
    assert call().shape == (7, 4, 16)
    assert call(**PAGES).shape == (7, 4, 16)


def test_dropout_of_a_sequence_is_that_of_its_rows():
    x = packed_tensors(SAME, g=4)
    problem = problem_of(x, SAME, alpha=1.5, dropout_p=0.5)
    places = packed.offsets_of(problem)
    seeds = [int(part.seed) for part in packed.unpacked(problem, places)]
    assert len({*seeds}) == len([n for n in SAME[0] if n])  # an empty one shares a place
