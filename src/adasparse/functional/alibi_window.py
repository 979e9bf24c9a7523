"""Windows of keys for heads with steep ALiBi slopes, whose weights farther away are zero.

A key at distance D of a query has a score of at most ``|query| |key| - slope * D``. The key at the
position of the query is always visible, so that the largest score is at least its own. Where the
first is below the second by more than a weight can reach, the weight is exactly zero. So a window
of keys gives the same weights as all of them, and the same gradients.
"""

import math

import torch
from torch import Tensor

from adasparse.functional.attention_operators import attend
from adasparse.functional.backends import can_read_values
from adasparse.kernels import AttentionProblem
from adasparse.kernels.problem import NO_CODES, numbers_of, with_tensors

#: Sequences shorter than this gain nothing, nor do those of fewer windows than this.
_MIN_LENGTH, _MIN_WINDOWS = 256, 4
#: ``exp`` of this much below 0 is 0 in float32 and in float64; weights are no larger than that.
_UNDERFLOW = {torch.float32: 104.0, torch.float64: 746.0}


def attend_nearby(problem: AttentionProblem, backend: str) -> Tensor:
    """Return the output of ``attend``, scoring only nearby keys for heads with steep slopes."""
    near = _near_heads(problem) if _may_have_windows(problem) else {}
    if not near:
        return attend(problem, backend)
    h = problem.query.shape[1]
    far = [i for i in range(h) if i not in near]
    parts = [attend(_within(_heads(problem, [*near]), max(near.values())), backend)]
    if far:
        parts.append(attend(_without_zero_slopes(_heads(problem, far)), backend))
    order = sorted(range(h), key=[*near, *far].__getitem__)
    output = torch.cat(parts, 1)
    return output if order == list(range(h)) else output[:, order]


def _may_have_windows(problem: AttentionProblem) -> bool:
    """Whether this is long causal self-attention with slopes alone, of which values can be read."""
    return (
        problem.slopes is not None
        and problem.is_causal
        and problem.mask is None
        and problem.softcap is None  # bounded scores are not as far apart as their products
        and problem.cu_seq_q is None
        and problem.position == 0
        and problem.key_lengths is None
        and problem.seed is None  # dropout goes by the places of whole rows
        and problem.query.shape[2] == problem.key.shape[2] >= _MIN_LENGTH
        and problem.query.numel() > 0
        and (problem.alpha.dim() < 2 or problem.alpha.numel() == 1)
        and can_read_values(
            problem.query, problem.key, problem.value, problem.alpha, problem.slopes
        )
    )


def _near_heads(problem: AttentionProblem) -> dict[int, int]:
    """Return the heads whose windows are worthwhile, with the sizes of these."""
    n = problem.query.shape[2]
    return {
        i: math.ceil(window)
        for i, window in enumerate(_windows(problem))
        if _MIN_WINDOWS * window <= n
    }


@torch.no_grad()
def _windows(problem: AttentionProblem) -> list[float]:
    """Return for each head a distance at which all weights are zero, infinite without a slope."""
    query, key, slopes = problem.query, problem.key, problem.slopes
    assert slopes is not None
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    query, key = query.to(dtype) * problem.scale, key.to(dtype)
    longest = key.norm(dim=-1).amax((0, 2))
    above = query.norm(dim=-1) * longest[:, None] - (query * key).sum(-1)
    reach = (1 / (problem.alpha.double() - 1)).clamp(max=_UNDERFLOW[dtype]).reshape(-1)
    # A thousandth more for rounding, and a token.
    steps = (above.amax((0, 2)).double() * 1.001 + reach) / slopes.double() + 1
    return [float(x) for x in torch.where(slopes > 0, steps, torch.inf)]


def _heads(problem: AttentionProblem, which: list[int]) -> AttentionProblem:
    """Return the problem of some heads, keys and values repeated to as many as queries."""
    shared = problem.query.shape[1] // problem.key.shape[1]
    groups = [i // shared for i in which]
    alpha, slopes, sinks = problem.alpha, problem.slopes, problem.sinks
    assert slopes is not None
    return with_tensors(
        problem,
        {
            "query": _pick(problem.query, 1, which),
            "key": _pick(problem.key, 1, groups),
            "value": _pick(problem.value, 1, groups),
            "alpha": _pick(alpha, 0, which) if alpha.dim() == 1 and len(alpha) > 1 else alpha,
            "slopes": _pick(slopes, 0, which),
            **NO_CODES,
            "sinks": None if sinks is None else _pick(sinks, 0, which),
        },
    )


def _pick(x: Tensor, dim: int, which: list[int]) -> Tensor:
    """Return some indices of a dimension, a view where they are side by side."""
    if which == list(range(which[0], which[-1] + 1)):
        return x.narrow(dim, which[0], len(which))
    return x.index_select(dim, torch.tensor(which))


def _within(problem: AttentionProblem, window: int) -> AttentionProblem:
    """Limit a causal problem to so many keys before each query."""
    left = problem.window_left
    return with_tensors(problem, {"window_left": window if left is None else min(window, left)})


def _without_zero_slopes(problem: AttentionProblem) -> AttentionProblem:
    """Drop slopes that change nothing and get no gradients."""
    slopes = problem.slopes
    assert slopes is not None
    if slopes.requires_grad or any(numbers_of(slopes)):
        return problem
    return with_tensors(problem, {"slopes": None})
