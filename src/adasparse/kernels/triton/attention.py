"""Attention by the Triton kernels: forward and backward."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adasparse.kernels.problem import AttentionGradients, AttentionProblem
from adasparse.kernels.triton import backward, decode, forward, launch, repair
from adasparse.kernels.triton.arguments import encode
from adasparse.kernels.triton.launch import Launch, is_readable, prepare
from adasparse.kernels.triton.words import transpose_kernel

#: Length of the last step of Newton's method before the output pass, by what a dtype can show.
_STEP_BOUNDS = {torch.float32: 2e-3, torch.float16: 0.02, torch.bfloat16: 0.05}


@dataclass(frozen=True, kw_only=True)
class SavedMask:
    """Memory that the backward needs: linear, but for one bit for each block of scores.

    Args:
        normalizers: ``(b, h, q)`` in float32; ``(1, h, total_q)`` of a packed batch.
        words: ``(b h, q blocks, k words)`` in int32, the bit mask of key blocks.
        mean: ``(b, h, q, e)``, values averaged with the weights sigma.
    """

    normalizers: Tensor
    words: Tensor
    mean: Tensor


def solve(
    call: Launch, normalizers: Tensor, words: Tensor, step_bound: float, counts: Tensor | None
) -> None:
    """Find normalizers and mask words of all heads, or of those with alpha above 1 if mixed."""
    flags = call.flags._replace(has_dropout=False, e=16, has_pad_v=False)
    inputs = call.inputs._replace(value=None, seed=None)
    call._replace(flags=flags, inputs=inputs).run(
        forward.threshold_kernel,
        "threshold_general" if flags.kind >= 3 else "threshold",
        call.blocks[0] * call.shape[0] * call.shape[1],
        step_bound,
        normalizers,
        words,
        counts,
        FLAGS=flags,
        IS_COUNTED=counts is not None,
    )


def attention_forward(
    problem: AttentionProblem, *, keep: bool, counts: Tensor | None = None
) -> tuple[Tensor, SavedMask | None]:
    """Return the output ``(b, h, q, e)`` and, if ``keep``, what the backward needs.

    Args:
        problem: In float16, bfloat16 or float32, the last dimensions contiguous.
        keep: Whether a backward follows.
        counts: ``(programs, 2)`` in int32 to count passes in, see ``forward.threshold_kernel``.
    """
    if not keep and decode.is_decoding(problem):
        return decode.attention_decode(problem), None
    call = prepare(problem)
    b, h, *_ = call.shape
    empty = _allocator(call)
    query = problem.query
    device = query.device
    out = empty((*query.shape[:3], problem.value.shape[-1]), dtype=query.dtype, device=device)
    mean = torch.empty_like(out) if keep else out
    normalizers = torch.empty(out.shape[:3], dtype=torch.float32, device=device)
    words = torch.zeros(b * h, call.blocks[0], call.words[1], dtype=torch.int32, device=device)
    programs = call.blocks[0] * b * h
    arguments = (normalizers, words, out, mean)
    flags = call.flags
    if flags.kind != 0:
        solve(call, normalizers, words, _STEP_BOUNDS[problem.query.dtype], counts)
        call.run(forward.output_kernel, "output", programs, *arguments, FLAGS=flags, IS_SAVED=keep)
    if flags.kind == 0 or flags.is_mixed:
        call.run(
            forward.softmax_kernel, "softmax", programs, *arguments, FLAGS=flags, IS_SAVED=keep
        )
    flags = flags._replace(is_mixed=False)
    call.run(repair.repair_kernel, "repair", programs, *arguments, FLAGS=flags, IS_SAVED=keep)
    if not keep:
        return out, None
    return out, SavedMask(normalizers=normalizers, words=words, mean=mean)


def _allocator(call: Launch) -> Callable[..., Tensor]:
    """``torch.empty``, or ``torch.zeros`` for a packed batch.

    There the kernels write the queries and keys that are used, and sequences may end before the
    tensors do: an offset on a device cannot be looked at.
    """
    return torch.zeros if call.flags.is_packed else torch.empty


def _transposed(words: Tensor, call: Launch) -> Tensor:
    """``(b h, k blocks, q words)`` from ``(b h, q blocks, k words)``."""
    (q_blocks, k_blocks), (q_words, k_words) = call.blocks, call.words
    transposed = words.new_empty(words.shape[0], k_blocks, q_words)
    sizes = (q_blocks, k_blocks, k_words, q_words)
    programs = words.shape[0] * k_words * q_words
    launch.run(transpose_kernel, programs, words, transposed, *sizes, warps=1, stages=1)
    return transposed


def _mask_gradient(
    call: Launch, mask: Tensor, saved: SavedMask, grad: Tensor, deltas: Tensor
) -> Tensor:
    """Gradient with respect to a float mask, in its shape and float32."""
    b, h, _, q, k = call.shape
    by_mask = torch.empty(mask.shape, dtype=torch.float32, device=mask.device)
    extents = tuple(full // n for full, n in zip((b, h, q, k), mask.shape, strict=True))
    q_tiles, k_tiles = (
        1 if extent > 1 else n for extent, n in zip(extents[2:], call.blocks, strict=True)
    )
    call.run(
        backward.mask_kernel,
        "query",
        mask.shape[0] * mask.shape[1] * q_tiles * k_tiles,
        saved.normalizers,
        saved.words,
        grad,
        deltas,
        by_mask,
        tuple(encode(n) for n in extents),
        FLAGS=call.flags,
    )
    return by_mask


def attention_backward(
    problem: AttentionProblem, saved: SavedMask, grad: Tensor, needs: frozenset[str]
) -> AttentionGradients:
    """Gradients with respect to the fields of the problem that are named in ``needs``."""
    call = prepare(problem)
    b, h, g, *_ = call.shape
    grad = grad.to(problem.query.dtype).contiguous()

    empty = _allocator(call)
    device = problem.query.device

    def empty_rows() -> Tensor:
        return empty(saved.normalizers.shape, dtype=torch.float32, device=device)

    by_query = empty(problem.query.shape, dtype=problem.query.dtype, device=device)
    deltas = empty_rows()
    by_alpha = empty_rows() if "alpha" in needs else None
    by_slope = empty_rows() if "slopes" in needs else None
    by_sink = empty_rows() if "sinks" in needs else None
    chosen = call.with_general_map(problem.alpha) if by_alpha is not None else call
    flags = chosen.flags._replace(is_mixed=False)
    if flags.kind >= 3 and not (is_readable(problem.alpha) and float(problem.alpha) <= 2):
        chosen.run(
            backward.steep_kernel,
            "steep",
            call.blocks[0] * b * h,
            saved.normalizers,
            saved.words,
            grad,
            deltas,
            FLAGS=flags,
        )
    chosen.run(
        backward.query_kernel,
        "query_general" if chosen.flags.kind >= 3 else "query",
        call.blocks[0] * b * h,
        saved.normalizers,
        saved.words,
        saved.mean,
        grad,
        by_query,
        deltas,
        by_alpha,
        by_slope,
        by_sink,
        FLAGS=flags,
    )
    by_key, by_value = (
        empty(x.shape, dtype=x.dtype, device=device) for x in (problem.key, problem.value)
    )
    if needs & {"key", "value"} and not call.flags.has_pages:
        call.run(
            backward.key_value_kernel,
            "key_value",
            call.blocks[1] * b * g,
            saved.normalizers,
            _transposed(saved.words, call),
            grad,
            deltas,
            by_key,
            by_value,
            FLAGS=call.flags._replace(is_mixed=False),
        )
    by_mask = None
    if "mask" in needs and problem.mask is not None:
        by_mask = _mask_gradient(call, problem.mask, saved, grad, deltas)
    if by_alpha is not None:
        by_alpha = by_alpha.double().unsqueeze(-1).sum_to_size(problem.alpha.shape)
    return AttentionGradients(
        query=by_query,
        key=by_key,
        value=by_value,
        alpha=by_alpha,
        mask=by_mask,
        slopes=None if by_slope is None else by_slope.double().sum((0, 2)),
        sinks=None if by_sink is None else by_sink.double().sum((0, 2)),
    )
