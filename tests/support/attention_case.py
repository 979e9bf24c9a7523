"""Attention and all its gradients, by any backend and by the oracle."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from adasparse import entmax_attention
from adasparse.kernels import reference
from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.torch import attention_scores, with_sinks
from support.helpers import randn
from support.tolerances import ATTENTION, MAX_SLACK

SEED = 11
#: Excess of every comparison beyond the tolerance, in the unit of MAX_SLACK; reported in the end.
slack_used: list[float] = []


def tensors(
    b: int = 2,
    h: int = 3,
    q: int = 7,
    k: int = 11,
    d: int = 8,
    *,
    g: int | None = None,
    e: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of standard normal numbers."""
    g, e = g or h, e or d
    return (
        randn((b, h, q, d), dtype=dtype, seed=seed),
        randn((b, g, k, d), dtype=dtype, seed=seed + 1000),
        randn((b, g, k, e), dtype=dtype, seed=seed + 2000),
    )


def _rank_four(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach()[(None,) * (4 - x.dim())]


def problem_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    alpha: float | Tensor = 1.5,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    window: tuple[int | None, int | None] = (None, None),
    softcap: float | None = None,
    sinks: Tensor | None = None,
    enable_gqa: bool = False,
) -> AttentionProblem:
    """Return what a kernel gets, for arguments of rank 4 and the seed that ``SEED`` leads to."""
    alpha = torch.as_tensor(alpha, dtype=torch.float64).detach()
    torch.manual_seed(SEED)
    return AttentionProblem(
        query=query.detach(),
        key=key.detach(),
        value=value.detach(),
        alpha=alpha.reshape(1, -1, 1, 1) if alpha.dim() < 2 else _rank_four(alpha),
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else scale,
        mask=_rank_four(attn_mask),
        key_lengths=key_lengths,
        slopes=None if alibi_slopes is None else alibi_slopes.detach().double(),
        seed=torch.randint(0, 2**62, ()) if dropout_p else None,
        is_causal=is_causal,
        dropout_p=dropout_p,
        window_left=window[0],
        window_right=window[1],
        softcap=softcap,
        sinks=None if sinks is None else sinks.detach().double(),
    )


def expected(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, **options: Any
) -> dict[str, Tensor]:
    """Output and gradients of the reference, in the shapes of the arguments."""
    problem = problem_of(query, key, value, **options)
    output, saved = reference.attention_forward(problem, keep=True)
    by = reference.attention_backward(problem, saved, grad)
    found = {"output": output, "query": by.query, "key": by.key, "value": by.value}
    others = {
        "alpha": by.alpha,
        "attn_mask": by.mask,
        "alibi_slopes": by.slopes,
        "sinks": by.sinks,
    }
    for name, x in others.items():
        given = options.get(name)
        if x is not None and isinstance(given, Tensor):
            found[name] = x.reshape(given.shape)
    return found


def actual(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, *, backend: str, **options: Any
) -> dict[str, Tensor]:
    """The same by ``entmax_attention``."""
    leaves = {"query": query, "key": key, "value": value}
    for name in ("alpha", "attn_mask", "alibi_slopes", "sinks"):
        x = options.get(name)
        if isinstance(x, Tensor) and x.is_floating_point():
            leaves[name] = x
    leaves = {name: x.detach().requires_grad_() for name, x in leaves.items()}
    torch.manual_seed(SEED)
    output = entmax_attention(**{**options, **leaves}, backend=backend)
    gradients = torch.autograd.grad(output, list(leaves.values()), grad)
    assert output.dtype == query.dtype
    for x, gradient in zip(leaves.values(), gradients, strict=True):
        assert gradient.dtype == x.dtype
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


def errors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, float]:
    """Return the largest error of each tensor."""
    assert set(found) == set(wanted)
    for name, x in found.items():
        assert x.shape == wanted[name].shape, name
        assert x.isfinite().all(), name
    return {
        name: (x.double() - wanted[name]).abs().max().item() if x.numel() else 0.0
        for name, x in found.items()
    }


def _rounding(problem: AttentionProblem) -> tuple[float, float]:
    """How far weights, and their slopes ``p^(2 - alpha)``, are off if scores are but rounded.

    The slopes are what gradients go by. Above 1.5 they are ever steeper at the edge of the support,
    where at 2 they jump; above 2, which is computed in float64, weights are steep there as well.
    """
    scores = with_sinks(problem, attention_scores(replace(problem, query=problem.query.double())))
    alpha = problem.alpha.expand(*scores.shape[:3], 1).reshape(-1, 1)
    scores, eps = scores.reshape(len(alpha), -1), alpha - 1
    weights = reference.entmax_forward(scores, alpha)
    is_wide = problem.query.dtype == torch.float64 or (alpha > 2).any()
    is_open = scores.isfinite()
    largest = torch.where(is_open, scores, 0.0).abs().max().clamp(min=1)
    step = (2.0**-52 if is_wide else 2.0**-23) * largest
    # 1 + eps u, which is p^eps inside of the support and not positive outside of it
    top = torch.where(is_open, scores, -torch.inf).amax(-1, keepdim=True)
    t = weights.amax(-1, keepdim=True) ** eps + eps * (scores - torch.where(is_open, top, 0.0))
    t = torch.where(weights > 0, weights**eps, t)
    is_open = is_open & (t >= -eps * step)
    near, power = torch.maximum(t, eps * step), 1 / torch.where(eps == 0, 1.0, eps)
    slope = torch.where(eps == 0, weights, near ** (power - 1))
    bend = torch.where(eps == 0, weights, (1 - eps).abs() * near ** (power - 2)) * step
    bend = torch.where(t <= eps * step, torch.maximum(slope, bend), bend)
    off = [torch.where(is_open, x, 0.0).max().item() for x in (slope * step, bend)]
    return off[0], off[1]


def _slack(problem: AttentionProblem, grad: Tensor) -> dict[str, float]:
    """How far each tensor may be off if scores are but rounded."""
    b, h, q, k = (*problem.query.shape[:3], problem.key.shape[2])
    value = problem.value.double().repeat_interleave(h // problem.value.shape[1], 1)
    by_weight = (grad.double() @ value.mT).abs().max().item() / (1 - problem.dropout_p)
    weight, slope = _rounding(problem)
    # Sums of many rows may cancel, which makes them small but not exact.
    share = (slope + weight + 0.02 * ATTENTION[problem.query.dtype]) * by_weight
    rows, mask = b * h * q, problem.mask
    return {
        "output": weight * value.abs().max().item() / (1 - problem.dropout_p),
        "value": weight * grad.abs().max().item() / (1 - problem.dropout_p),
        "query": share * abs(problem.scale) * problem.key.abs().max().item(),
        "key": share * abs(problem.scale) * problem.query.abs().max().item(),
        "alpha": share * math.sqrt(rows / problem.alpha.numel()),
        "attn_mask": 0.0 if mask is None else share * math.sqrt(rows * k / mask.numel()),
        "alibi_slopes": share * k * math.sqrt(b * q),
        "sinks": share * math.sqrt(b * q),
    }


def check(
    query: Tensor, key: Tensor, value: Tensor, *, backends: list[str], seed: int = 0, **options: Any
) -> None:
    """Compare output and every gradient of ``backends`` with the reference."""
    grad = randn((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, seed=seed + 3000)
    wanted = expected(query, key, value, grad, **options)
    for backend in backends:
        found = actual(query, key, value, grad, backend=backend, **options)
        # Sums that cancel are small but not exact: slack is counted in errors of the largest.
        unit = ATTENTION[query.dtype] * max(x.abs().max().item() for x in wanted.values())
        for name, error in errors(found, wanted).items():
            allowed = ATTENTION[query.dtype] * wanted[name].abs().max().item()
            if error > allowed:  # seldom, so that the effort may be great
                slack = _slack(problem_of(query, key, value, **options), grad)[name]
                slack_used.append((error - allowed) / unit)
                allowed += min(slack, MAX_SLACK * unit)
            assert error <= allowed, f"{backend} {name}: error {error:.2e} above {allowed:.2e}"
