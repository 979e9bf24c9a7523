"""Attention in packed batches: sequences of any lengths one after another, without padding."""

from operator import index

import torch
from torch import Tensor

from adasparse.functional.arguments import is_one_or, number_as_alpha
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
from adasparse.functional.attention_operators import attend
from adasparse.functional.backends import check_backend
from adasparse.kernels import AttentionProblem

_INTEGERS = (torch.int32, torch.int64)


def entmax_attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    alpha: float | Tensor = 1.5,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    window: tuple[int | None, int | None] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attend within each sequence of a packed batch, as ``entmax_attention`` does in one.

    The sparse counterpart of ``torch.nn.attention.varlen.varlen_attn``, with its arguments in its
    order; its ``window_size`` is called ``window``. The tokens of all sequences lie one after
    another, and no padding is ever materialized. The last query of a sequence is at its last key:
    under ``is_causal`` query i of a sequence with q queries and k keys sees keys 0 to
    ``i + k - q``, and a window is counted from there. This is the alignment of ``varlen_attn`` and
    differs from ``entmax_attention``, which puts query 0 at key 0, where q and k differ.

    Precision, gradients and determinism are those of ``entmax_attention``.

    Args:
        query: ``(total_q, h, d)``.
        key: ``(total_k, h, d)``; ``(total_pages, page_size, h, d)`` with a ``block_table``.
        value: ``(total_k, h, e)``; ``(total_pages, page_size, h, e)`` with a ``block_table``.
        cu_seq_q: Offsets of the sequences in ``query``, integers ``(n + 1,)``: sequence s has the
            queries from ``cu_seq_q[s]`` to ``cu_seq_q[s + 1]``. Starts at 0 and ends at
            ``total_q``; sequences may be empty.
        cu_seq_k: The same for ``key`` and ``value``. ``cu_seq_q`` if None, unless there is a
            ``block_table``, with which it must be None.
        max_q: Number of queries of the longest sequence, or more. Without it, kernels that need it
            read it from ``cu_seq_q``, for which a GPU has to wait.
        max_k: The same for the keys.
        alpha: As for ``entmax_attention``: a number, one per head ``(h,)``, or broadcastable to
            ``(total_q, h, 1)``.
        is_causal: Whether later keys are masked.
        scale: Factor of the dot products, finite; ``1 / sqrt(d)`` if None.
        dropout_p: Probability of dropping a weight.
        window: Sliding window ``(left, right)`` around the position of each query; None or -1 for
            no limit on a side. ``(-1, 0)`` is causal.
        enable_gqa: Whether ``key`` and ``value`` may have fewer heads ``g`` than ``query``, whose
            head i then reads head ``i // (h // g)``.
        seqused_k: Number of keys that each sequence uses, integers ``(n,)``; the keys after them
            never matter, as if they were not there. Required with a ``block_table``.
        block_table: Pages of each sequence, integers ``(n, pages)``: the keys of sequence s are
            those of pages ``block_table[s, 0]``, ``block_table[s, 1]``, ... up to
            ``seqused_k[s]``. For inference; there are no gradients.
        alibi_slopes: As for ``entmax_attention``, like all that follow.
        softcap: Bound of the scores.
        sinks: Score of the sink of each head ``(h,)``.
        backend: Kernels to use.

    Returns:
        ``(total_q, h, e)`` in the dtype of ``query``.

    Example:
        >>> import torch
        >>> x = torch.randn(10, 8, 64)  # sequences of 3 and 7 tokens, 8 heads
        >>> offsets = torch.tensor([0, 3, 10])
        >>> output = entmax_attention_varlen(x, x, x, cu_seq_q=offsets, is_causal=True)
        >>> output.shape
        torch.Size([10, 8, 64])
    """
    backend = check_backend(backend)
    check_tensors(query, key, value)
    query, key, value = autocast(query, key, value)
    check_dtypes(query, key, value)
    _check_ranks(query, key, value, is_paged=block_table is not None)
    # As kernels read them: (1, h, total, d), or (pages, h, page_size, d).
    query = query.transpose(0, 1).unsqueeze(0)
    if block_table is None:
        key, value = (x.transpose(0, 1).unsqueeze(0) for x in (key, value))
    else:
        key, value = key.transpose(1, 2), value.transpose(1, 2)
    _check_sizes(query, key, value, enable_gqa)
    cu_seq_q = _as_integers("cu_seq_q", cu_seq_q, query, 1)
    n = cu_seq_q.shape[0] - 1  # not len(), which torch.compile takes for a constant
    if block_table is not None:
        block_table = _as_table(block_table, cu_seq_k, seqused_k, query, n)
        _check_no_gradients(query, key, value)
    else:
        cu_seq_k = cu_seq_q if cu_seq_k is None else _as_integers("cu_seq_k", cu_seq_k, query, 1)
    if n < 1 or (cu_seq_k is not None and cu_seq_k.shape[0] != n + 1):
        raise ValueError(
            "cu_seq_q and cu_seq_k must have the shape (n + 1,) for n sequences, one or more; got "
            f"{tuple(cu_seq_q.shape)} and {None if cu_seq_k is None else tuple(cu_seq_k.shape)}."
        )
    if seqused_k is not None:
        seqused_k = _as_integers("seqused_k", seqused_k, query, 1, dtype=torch.int64)
        if seqused_k.shape[0] != n:
            raise ValueError(
                f"seqused_k must have the shape ({n},), one per sequence; "
                f"got {tuple(seqused_k.shape)}."
            )
    for name, x in (("alibi_slopes", alibi_slopes), ("sinks", sinks)):
        if x is not None:
            check_per_head(name, x, query)
    check_switch("is_causal", is_causal)
    check_switch("enable_gqa", enable_gqa)
    check_dropout(dropout_p)
    if scale is not None:
        check_scale(scale)
    if softcap is not None:
        check_softcap(softcap)
    window_left, window_right = window_sides(_without_minus_one(window))
    problem = AttentionProblem(
        query=query,
        key=key,
        value=value,
        alpha=_as_alpha(alpha, query),
        slopes=alibi_slopes,
        sinks=sinks,
        key_lengths=seqused_k,
        cu_seq_q=cu_seq_q,
        cu_seq_k=cu_seq_k,
        block_table=block_table,
        seed=new_seed(dropout_p, query),
        scale=default_scale(query.shape[3]) if scale is None else float(scale),
        is_causal=is_causal,
        dropout_p=dropout_p,
        window_left=window_left,
        window_right=window_right,
        softcap=None if softcap is None else float(softcap),
        max_q=_as_longest("max_q", max_q),
        max_k=_as_longest("max_k", max_k),
    )
    return attend(problem, backend).squeeze(0).transpose(0, 1)


def _check_ranks(query: Tensor, key: Tensor, value: Tensor, *, is_paged: bool) -> None:
    rank = 4 if is_paged else 3
    if (query.dim(), key.dim(), value.dim()) != (3, rank, rank):
        packed = "(total_pages, page_size, h, d)" if is_paged else "(total_k, h, d)"
        raise ValueError(
            f"query must have the shape (total_q, h, d), key and value {packed}; "
            f"got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Check ``(1, h, total_q, d)``, and ``(1, g, total_k, d)`` or pages of this form."""
    if query.shape[3] != key.shape[3]:
        raise ValueError(
            "query (total_q, h, d) and key (..., h, d) must agree on d; "
            f"got {query.shape[3]} and {key.shape[3]}."
        )
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(
            "key and value must agree on all sizes but the last; "
            f"got heads, tokens {tuple(key.shape[1:3])} and {tuple(value.shape[1:3])}, "
            f"pages {key.shape[0]} and {value.shape[0]}."
        )
    h, g = query.shape[1], key.shape[1]
    if h != g and not (enable_gqa and g > 0 and h % g == 0):
        raise ValueError(
            f"query and key must have as many heads as each other; got {h} and {g}. "
            + (
                "With enable_gqa=True, those of query may be a multiple of the others."
                if enable_gqa
                else "With enable_gqa=True, heads of query share those of key and value."
            )
        )


def _as_integers(
    name: str, x: Tensor, query: Tensor, rank: int, dtype: torch.dtype = torch.int32
) -> Tensor:
    if not isinstance(x, Tensor) or x.dtype not in _INTEGERS:
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} must be a tensor of int32 or int64; got {given}.")
    check_device(name, x, query)
    if x.dim() != rank:
        raise ValueError(f"{name} must have rank {rank}; got the shape {tuple(x.shape)}.")
    return x.to(dtype).contiguous()


def _as_table(
    table: Tensor, cu_seq_k: Tensor | None, seqused_k: Tensor | None, query: Tensor, n: int
) -> Tensor:
    table = _as_integers("block_table", table, query, 2)
    if table.shape[0] != n:
        raise ValueError(
            f"block_table must have the shape ({n}, pages), a row per sequence; "
            f"got {tuple(table.shape)}."
        )
    if seqused_k is None:
        raise ValueError("block_table requires seqused_k, the number of keys of each sequence.")
    if cu_seq_k is not None:
        raise ValueError("cu_seq_k must be None with a block_table, which has the places of keys.")
    return table


def _check_no_gradients(*tensors: Tensor) -> None:
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise ValueError(
            "block_table is for inference: query, key and value must not require gradients. "
            "Call it under torch.no_grad(), or pack keys and values and pass cu_seq_k."
        )


def _without_minus_one(
    window: tuple[int | None, int | None] | None,
) -> tuple[int | None, int | None] | None:
    """Replace -1, as ``varlen_attn`` writes no limit, by None."""
    if not isinstance(window, (tuple, list)):
        return window
    return tuple(None if side == -1 else side for side in window)  # type: ignore[return-value]


def _as_alpha(alpha: float | Tensor, query: Tensor) -> Tensor:
    """Return alpha in the forms of ``AttentionProblem``."""
    _, h, total, _ = query.shape
    if not isinstance(alpha, Tensor):
        number = number_as_alpha(alpha)
        return torch.full((1, 1, 1, 1), number, dtype=torch.float64, device="cpu")
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must be a floating point tensor; got {alpha.dtype}.")
    if alpha.dim() == 0:
        return alpha
    check_device("alpha", alpha, query)
    if alpha.dim() == 1 and is_one_or(h, alpha.shape[0]):
        return alpha
    shape = (1,) * (3 - alpha.dim()) + tuple(alpha.shape)
    fits = len(shape) == 3 and all(map(is_one_or, (total, h, 1), shape))
    if alpha.dim() == 1 or not fits:
        raise ValueError(
            f"alpha must be a number, have the shape ({h},), one per head, or broadcast to "
            f"({total}, {h}, 1); got {tuple(alpha.shape)}."
        )
    return alpha.reshape(shape).transpose(0, 1).unsqueeze(0)


def _as_longest(name: str, given: int | None) -> int | None:
    if given is None:
        return None
    kind = type(given).__name__
    if not isinstance(given, (int, torch.SymInt)):  # of numpy, or a tensor such as lengths.max()
        try:
            given = index(given)
        except TypeError:
            given = None
    if given is None or isinstance(given, bool):
        raise TypeError(f"{name} must be an integer; got {kind}.")
    if given < 0:
        raise ValueError(f"{name} must not be negative; got {given}.")
    return given
