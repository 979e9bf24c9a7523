"""The arguments of attention, checked and brought into the one form that kernels take."""

import math
import sys
from typing import Any

import torch
from torch import Tensor

from adasparse.functional.arguments import (
    bound_of,
    check_alpha_values,
    check_dense,
    constant,
    is_one_or,
    number_as_alpha,
)
from adasparse.functional.attention_checks import (
    autocast,
    check_device,
    check_dropout,
    check_dtypes,
    check_per_head,
    check_scale,
    check_softcap,
    check_switch,
    check_tensors,
    default_scale,
    new_seed,
    window_sides,
)
from adasparse.functional.packed_keys import PackedKeys
from adasparse.kernels import AttentionProblem
from adasparse.kernels.problem import (
    NO_CODES,
    build,
    numbers_of,
    tensor_names,
    tensors_of,
    with_tensors,
)


def attention_problem(
    query: Tensor,
    key: Tensor | PackedKeys,
    value: Tensor | PackedKeys,
    *,
    alpha: float | Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    enable_gqa: bool = False,
) -> tuple[AttentionProblem, tuple[int, ...]]:
    """Check everything; return the problem and the leading dimensions ``(..., h)`` of the result.

    The tensors keep the dtypes of the caller; ``prepared`` converts them. ``value`` may be the
    packed keys where it does not matter.
    """
    packed, was_packed = None, isinstance(key, PackedKeys)
    if isinstance(key, PackedKeys):
        key, value, packed = _unpack(query, key, value)
    value = check_tensors(query, key, value)
    query, key, value = autocast(query, key, value)
    check_dtypes(query, key if packed is None else packed, value)
    shapes = query.shape, key.shape, value.shape
    ranks = query.dim(), key.dim(), value.dim()
    rank = max(ranks)
    batch: tuple[int, ...] = shapes[0][:-3]
    # Most calls have nothing to broadcast.
    if min(ranks) != 4 or not shapes[0][:2] == shapes[1][:2] == shapes[2][:2]:
        query, key, value, batch = _merge_batch(query, key, value)
        query, key, value = _match_heads(query, key, value, enable_gqa)
        shapes = query.shape, key.shape, value.shape
    _check_sizes(*shapes)
    _, num_heads, num_queries, head_dim = shapes[0]
    rows = (*batch, num_heads, num_queries)
    if attn_mask is not None and type(attn_mask) is not Tensor and _is_causal_bias(attn_mask):
        attn_mask, is_causal = _from_causal_bias(attn_mask, (*rows, shapes[1][2]), query, is_causal)
    if attn_mask is not None:
        attn_mask = _as_mask(attn_mask, (*rows, shapes[1][2]), query)
    if key_lengths is not None:
        key_lengths = _as_key_lengths(key_lengths, batch, query)
    if alibi_slopes is not None:
        check_per_head("alibi_slopes", alibi_slopes, query)
    if sinks is not None:
        check_per_head("sinks", sinks, query)
    check_switch("is_causal", is_causal)
    check_switch("enable_gqa", enable_gqa)
    check_dropout(dropout_p)
    if scale is not None:
        check_scale(scale)
    if softcap is not None:
        check_softcap(softcap)
    window_left, window_right = window_sides(window)
    fields = {
        "query": query,
        "key": key,
        "value": value,
        "alpha": _as_alpha(alpha, (*rows, 1), query),
        "mask": attn_mask,
        "slopes": alibi_slopes,
        "sinks": sinks,
        "key_lengths": key_lengths,
        "cu_seq_q": None,
        "cu_seq_k": None,
        "block_table": None,
        "seed": new_seed(dropout_p, query),
        "scale": default_scale(head_dim) if scale is None else float(scale),
        "is_causal": is_causal,
        "dropout_p": dropout_p,
        "window_left": window_left,
        "window_right": window_right,
        "position": 0,
        "softcap": None if softcap is None else float(softcap),
        "max_q": None,
        "max_k": None,
        "highest_alpha": bound_of(alpha),
        **(NO_CODES if packed is None else packed.codes(*key.shape[:2])),
    }
    problem = build(AttentionProblem, fields)
    if was_packed:
        _check_forward_only(problem)
    return problem, rows[: rank - 2]


def _unpack(
    query: Tensor, packed: PackedKeys, value: Tensor | PackedKeys
) -> tuple[Tensor, Tensor, PackedKeys | None]:
    """Return packed keys as a tensor, values, and the packed keys if their codes can be used."""
    is_cast = query.is_cpu and torch.is_autocast_enabled("cpu")
    is_coded = packed.is_coded and not is_cast
    key = packed.to_dense()
    if isinstance(value, PackedKeys):
        value = key
    return key, value, packed if is_coded else None


def _check_forward_only(problem: AttentionProblem) -> None:
    if torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in tensors_of(problem, _TENSORS)
    ):
        raise RuntimeError(
            "attention with PackedKeys has no gradients, and an argument requires them. Call it "
            "under torch.no_grad() or torch.inference_mode(), or pass keys as a tensor."
        )


_TENSORS = tensor_names(AttentionProblem)


def compute_dtype(problem: AttentionProblem) -> torch.dtype:
    """Return float32 or float64, which alpha above 2 needs too, being steep at the edge.

    Raises if an alpha in CPU memory is below 1 or infinite; others would stall the device.
    """
    alpha = problem.alpha
    if not alpha.is_cpu or not alpha.numel():
        values = [1.0]
    elif alpha.numel() == 1:
        values = [alpha.item()]
    elif alpha.dim() == 1:
        values = numbers_of(alpha)  # quicker than an operation, for one number per head
    else:
        values = [x.item() for x in alpha.detach().aminmax()]
    for x in values:
        if not 1 <= x < math.inf:
            check_alpha_values(alpha, 1.0)
    is_steep = problem.query.dtype == torch.float64 or max(values) > 2
    return torch.float64 if is_steep else torch.float32


def readable(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x`` in ``dtype`` with a contiguous last dimension, and with its sign in memory."""
    if x.dtype != dtype:
        x = x.to(dtype)
    x = x.resolve_neg()  # the imaginary part of a conjugate has a sign that memory does not show
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def prepared(problem: AttentionProblem, dtype: torch.dtype) -> AttentionProblem:
    """Return the problem in the form that kernels read; no more than that is copied."""
    query, alpha, mask, slopes = problem.query, problem.alpha, problem.mask, problem.slopes
    changed = {}
    for name, x in (("query", query), ("key", problem.key), ("value", problem.value)):
        if (y := readable(x, dtype)) is not x:
            changed[name] = y
    wide_alpha = (alpha if alpha.dim() == 4 else alpha.reshape(1, -1, 1, 1)).double().resolve_neg()
    if wide_alpha is not alpha:
        changed["alpha"] = wide_alpha
    if mask is not None and (signed := mask.resolve_neg()) is not mask:
        changed["mask"] = mask = signed
    if mask is not None and mask.dtype != torch.bool and mask.dtype != dtype:
        # A mask in float32 keeps its digits beside inputs in half precision.
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if mask.dtype != wide:
            changed["mask"] = mask.to(wide)
    if slopes is not None:
        changed["slopes"] = slopes.double().contiguous().resolve_neg()
    if problem.sinks is not None:
        changed["sinks"] = problem.sinks.double().contiguous().resolve_neg()
    return with_tensors(problem, changed) if changed else problem


def _check_sizes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    if query[3] != key[3]:
        raise ValueError(
            f"query (..., q, d) and key (..., k, d) must agree on d; got {query[3]} and {key[3]}."
        )
    if key[2] != value[2]:
        raise ValueError(
            f"key (..., k, d) and value (..., k, e) must agree on k; got {key[2]} and {value[2]}."
        )


def _merge_batch(
    query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
    """Broadcast the leading dimensions and merge them into one; views where strides allow."""
    shapes = [x.shape[:-3] for x in (query, key, value)]
    try:
        batch = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise ValueError(
            "the batch dimensions of query, key and value must broadcast against each other; "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}."
        ) from None
    query, key, value = (_expand_batch(x, batch) for x in (query, key, value))
    return query, key, value, batch


def _inner(x: Tensor) -> tuple[int, ...]:
    """Return the last three sizes, the first of them 1 where there are fewer."""
    return (1,) * (3 - x.dim()) + tuple(x.shape[-3:])


def _expand_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """``(..., h, n, d)`` as ``(b, h, n, d)``, of which only the batch is expanded."""
    inner = _inner(x)
    return x.expand(*batch, *inner).reshape(math.prod(batch), *inner)


def _keep_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Give the same rank 4, with size 1 in front where all of the batch shares ``x``."""
    inner = _inner(x)
    if math.prod(x.shape[:-3]) == 1:
        return x.reshape(1, *inner)
    return _expand_batch(x, batch)


def _match_heads(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Expand one head where it must be; keys and values may have fewer than queries."""
    h, g, value_heads = query.shape[1], key.shape[1], value.shape[1]
    shared = value_heads if g == 1 else g
    is_fine = is_one_or(h, shared) or h == 1
    is_fine = is_fine or (enable_gqa and shared > 0 and h % shared == 0)
    if not is_fine or not is_one_or(shared, value_heads):
        raise ValueError(
            "query, key and value must have as many heads as each other, or 1; "
            f"got {h}, {g} and {value_heads}. "
            + (
                "With enable_gqa=True, those of query may be a multiple of the others."
                if enable_gqa
                else "With enable_gqa=True, heads of query share those of key and value."
            )
        )
    if g != value_heads:
        key, value = (x.expand(-1, shared, -1, -1) for x in (key, value))
    if h != shared and h == 1:
        query = query.expand(-1, shared, -1, -1)
    return query, key, value


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    missing = len(target) - len(shape)
    return missing >= 0 and all(
        is_one_or(want, got) for got, want in zip(shape, target[missing:], strict=True)
    )


def _as_alpha(alpha: float | Tensor, rows: tuple[int, ...], query: Tensor) -> Tensor:
    """Return alpha of rank 0, or 1 if it has one value per head, or 4; numbers on the CPU."""
    if not isinstance(alpha, Tensor):
        return constant(number_as_alpha(alpha), 4)
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must be a floating point tensor; got {alpha.dtype}.")
    check_dense("alpha", alpha)
    if alpha.dim() == 0:
        return alpha
    check_device("alpha", alpha, query)
    if alpha.dim() == 1 and is_one_or(query.shape[1], alpha.shape[0]):
        return alpha
    if alpha.dim() == 1 or not _broadcasts(alpha.shape, rows):
        raise ValueError(
            f"alpha must be a number, have the shape ({query.shape[1]},), one per head, or "
            f"broadcast to {rows}; got {tuple(alpha.shape)}."
        )
    return alpha if alpha.dim() == 4 == len(rows) else _keep_batch(alpha, rows[:-3])


def _is_causal_bias(mask: Any) -> bool:
    """Whether this is PyTorch's causal bias, whose module is slow to import and so is looked up."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(mask, module.CausalBias)


def _from_causal_bias(
    bias: Any, scores: tuple[int, ...], query: Tensor, is_causal: bool
) -> tuple[Tensor | None, bool]:
    """Return the mask that PyTorch's causal bias stands for, whose own memory holds nothing."""
    sizes = bias.seq_len_q, bias.seq_len_kv
    if sizes != scores[-2:]:
        raise ValueError(
            f"attn_mask must be a causal bias for {scores[-2]} queries and {scores[-1]} keys; "
            f"got one for {sizes[0]} and {sizes[1]}."
        )
    if bias.variant.name == "UPPER_LEFT" or sizes[0] == sizes[1]:
        return None, True
    return bias._materialize(query.device), is_causal


def _check_mask_type(mask: Tensor) -> None:
    """Raise for a tensor subclass that gives its memory a meaning of its own."""
    own = getattr(type(mask).__torch_function__, "__func__", type(mask).__torch_function__)
    if own not in (Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl):  # type: ignore[attr-defined]
        raise TypeError(
            f"attn_mask must be a plain tensor or a causal bias of torch.nn.attention.bias; "
            f"got {type(mask).__name__}. If its numbers are the mask, pass "
            "attn_mask.as_subclass(torch.Tensor)."
        )


def _as_mask(mask: Tensor, scores: tuple[int, ...], query: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or (mask.dtype != torch.bool and not mask.is_floating_point()):
        raise TypeError(
            "attn_mask must be a bool tensor, True where a key takes part, or a floating point "
            f"one to add; got {mask.dtype if isinstance(mask, Tensor) else type(mask).__name__}."
        )
    check_dense("attn_mask", mask)
    if type(mask) is not Tensor:
        _check_mask_type(mask)
    check_device("attn_mask", mask, query)
    if not _broadcasts(mask.shape, scores):
        raise ValueError(
            f"attn_mask must broadcast to {scores}, the shape of the scores; "
            f"got {tuple(mask.shape)}."
        )
    return mask if mask.dim() == 4 == len(scores) else _keep_batch(mask, scores[:-3])


def _as_key_lengths(lengths: Tensor, batch: tuple[int, ...], query: Tensor) -> Tensor:
    if not isinstance(lengths, Tensor) or (
        lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool
    ):
        raise TypeError(
            "key_lengths must be an integer tensor; got "
            f"{lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__}."
        )
    check_dense("key_lengths", lengths)
    check_device("key_lengths", lengths, query)
    if not _broadcasts(lengths.shape, batch):
        raise ValueError(
            f"key_lengths must have the shape of the batch, {tuple(batch)}; "
            f"got {tuple(lengths.shape)}."
        )
    if lengths.dtype != torch.int64 or lengths.shape != batch or lengths.dim() != 1:
        lengths = lengths.long().expand(batch).reshape(-1)
    return lengths.contiguous()
