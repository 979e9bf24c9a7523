"""Packed sequences, pages, sinks, softcap and positions by the Triton kernels."""

from dataclasses import replace

import pytest
import torch

from adasparse import entmax_attention_varlen
from adasparse.kernels import reference
from adasparse.kernels.triton import attention_backward, attention_forward, decode
from support.triton_problems import (
    DEVICE,
    assert_agrees,
    computed,
    in_pages,
    make,
    on_device,
    packed,
)

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

ALPHAS = [1.0, 1.3, 1.5, 2.0]
SINKS = torch.tensor([0.5, 1.0, -torch.inf, 2.0], dtype=torch.float64)
SLOPES = torch.tensor([0.1, 0.2, 0.0, 0.3], dtype=torch.float64)


def test_softcap():
    assert_agrees(*make(h=3, alpha=[1.0, 1.3, 1.5], q=17, k=65, softcap=1.5, spread=3.0))


@pytest.mark.parametrize(
    "alpha", [pytest.param([1.0, 1.3, 1.5], marks=pytest.mark.slow), 1.5], ids=str
)
def test_sinks(alpha):
    assert_agrees(*make(h=3, alpha=alpha, q=17, k=65, sinks=SINKS[:3], is_causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.3, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_sinks_of_every_alpha(alpha, softcap):
    options = {"sinks": SINKS, "softcap": softcap}
    problem = make(h=4, alpha=alpha, q=65, k=129, **options)
    assert_agrees(*problem, tolerance=2e-5, is_steep=alpha == 1.75)


def test_sinks_of_rows_that_see_no_key():
    mask = torch.arange(33) < torch.arange(17).unsqueeze(-1) - 5
    options = {"sinks": SINKS[1:3], "mask": mask[None, None]}
    found = assert_agrees(*make(h=2, alpha=[1.3, 1.5], q=17, k=33, **options))
    assert found["output"][:, :, :6].abs().max() == 0


@pytest.mark.parametrize(("q", "k", "position"), [(17, 65, 40), (70, 33, -30)])
def test_position_of_the_first_query(q, k, position):
    options = {"is_causal": True, "position": position, "window_left": 20}
    assert_agrees(*make(h=1, alpha=[1.3], q=q, k=k, **options))


def test_packed_sequences():
    lengths = [1, 17, 65, 0], [3, 17, 40, 5]
    assert_agrees(*packed(*lengths, h=2, g=1, alpha=[1.0, 1.3], is_causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [ALPHAS, 1.5, 2.0], ids=str)
def test_packed_sequences_of_every_alpha(alpha):
    lengths = [1, 17, 65, 0, 129], [3, 17, 40, 5, 129]
    assert_agrees(*packed(*lengths, h=4, g=2, alpha=alpha, is_causal=True))


def test_packed_sequences_with_every_option():
    problem, grad = packed(
        [1, 17, 5], [3, 17, 90], h=2, g=1, alpha=[1.3, 1.5], window_left=9, slopes=SLOPES[:2],
        sinks=SINKS[:2], softcap=4.0, dropout_p=0.2, key_lengths=torch.tensor([2, 17, 80]),
    )  # fmt: skip
    assert_agrees(replace(problem, seed=torch.tensor(7)), grad)


def test_tokens_after_the_last_sequence_change_nothing():
    options = {"h": 2, "g": 1, "alpha": [1.3, 1.5], "sinks": SINKS[:2], "slopes": SLOPES[:2]}
    problem, grad = packed([5, 17, 9], [3, 17, 9], **options)
    used = {"query": 22, "key": 20, "value": 20}
    short = replace(problem, **{name: getattr(problem, name)[:, :, :n] for name, n in used.items()})
    short, longer = (
        replace(x, cu_seq_q=problem.cu_seq_q[:3], cu_seq_k=problem.cu_seq_k[:3])
        for x in (short, problem)
    )
    wanted, found = computed(short, grad[:, :, :22]), computed(longer, grad)
    for name, x in wanted.items():
        n = used.get(name, 22)
        rest = found[name][:, :, n:] if x.dim() == 4 and x.shape[2] == n else torch.zeros(())
        assert (rest == 0).all(), name
        kept = found[name][:, :, :n] if rest.dim() else found[name]
        assert torch.equal(kept, x), name


def test_packed_alpha_per_query():
    alpha = 1 + torch.rand(1, 2, 18, 1, dtype=torch.float64, generator=torch.Generator())
    assert_agrees(*packed([1, 17], [3, 17], h=2, alpha=alpha), tolerance=2e-5)


def test_pages():
    problem, grad = packed([1, 17], [3, 17], h=2, g=1, alpha=[1.3, 1.5], is_causal=True)
    problem = in_pages(problem, [3, 70])
    output, saved = attention_forward(on_device(problem), keep=True)
    wanted, kept = reference.attention_forward(problem, keep=True)
    assert (output.cpu() - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    needs = frozenset({"query"})
    found = attention_backward(on_device(problem), saved, grad.to(DEVICE), needs).query.cpu()
    wanted = reference.attention_backward(problem, kept, grad, needs).query
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("is_paged", [False, True])
def test_decoding_of_packed_sequences(monkeypatch, is_paged):
    monkeypatch.setattr(decode, "MIN_KEYS", 65)
    options = {"sinks": SINKS, "is_causal": True, "slopes": 0.1 * SLOPES, "softcap": 5.0}
    problem, _ = packed([1, 3, 2], [129, 17, 3], h=4, g=2, alpha=ALPHAS, **options)
    if is_paged:
        problem = in_pages(problem, [129, 17, 3])
    assert decode.is_decoding(problem)
    output, _ = attention_forward(on_device(problem), keep=False)
    wanted, _ = reference.attention_forward(problem, keep=False)
    assert (output.cpu() - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_public_function_without_longest_lengths():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(22, 2, 8, generator=generator).to(DEVICE) for _ in range(3))
    offsets = torch.tensor([0, 5, 22], device=DEVICE)
    found, wanted = (
        entmax_attention_varlen(query, key, value, cu_seq_q=offsets, is_causal=True, backend=name)
        for name in ("triton", "torch")
    )
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_decoding_gives_zeros_to_tokens_after_the_last_sequence(monkeypatch):
    # They got the output of the last query.
    monkeypatch.setattr(decode, "MIN_KEYS", 65)
    problem, _ = packed([1, 2, 3], [70, 5, 9], h=2, g=1, alpha=[1.3, 1.5])
    longer = replace(problem, cu_seq_q=problem.cu_seq_q[:3], cu_seq_k=problem.cu_seq_k[:3], max_q=2)
    assert decode.is_decoding(longer)
    output, _ = attention_forward(on_device(longer), keep=False)
    assert (output[:, :, 3:] == 0).all() and output[:, :, :3].all()


def test_too_small_a_number_of_keys_writes_nothing_elsewhere():
    # The mask of a sequence with more keys than max_k went on into that of the next one.
    problem, _ = packed([17, 17], [2112, 17], h=1, alpha=1.5)
    output, saved = attention_forward(on_device(replace(problem, max_k=64)), keep=True)
    alone, _ = packed([17, 17], [64, 17], h=1, alpha=1.5)
    first, last = problem.key[:, :, :64], problem.key[:, :, -17:]
    values = problem.value[:, :, :64], problem.value[:, :, -17:]
    alone = replace(alone, key=torch.cat((first, last), 2), value=torch.cat(values, 2))
    alone = replace(alone, query=problem.query)
    wanted, kept = attention_forward(on_device(alone), keep=True)
    assert torch.equal(saved.words, kept.words) and torch.equal(output, wanted)
