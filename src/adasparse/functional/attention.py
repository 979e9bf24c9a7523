"""Attention whose weights are mostly zero, at the cost of those that are not."""

import warnings
from typing import NamedTuple

from torch import Tensor

from adasparse.functional.alibi_window import attend_nearby
from adasparse.functional.attention_arguments import attention_problem
from adasparse.functional.attention_operators import attend, support
from adasparse.functional.backends import check_backend
from adasparse.functional.differentiable_attention import attention_weights
from adasparse.functional.packed_keys import PackedKeys
from adasparse.kernels import AttentionProblem

_LAYOUTS = ("dense", "sparse")


class SparseWeights(NamedTuple):
    """Weights as a compressed matrix with a row for each query ``(..., h, q)`` in order.

    ``torch.sparse_csr_tensor(*weights, (rows, k))`` makes a tensor of them.

    Args:
        crow: ``(rows + 1,)``: offset of each row, and the end.
        col: ``(n,)``: key of each entry, ascending within a row.
        value: ``(n,)``: weight of each entry.
    """

    crow: Tensor
    col: Tensor
    value: Tensor


def entmax_attention(
    query: Tensor,
    key: Tensor | PackedKeys,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    alpha: float | Tensor = 1.5,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    enable_gqa: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Attend to few keys: ``entmax(scale * query @ key.mT) @ value``, without the score matrix.

    The sparse counterpart of ``torch.nn.functional.scaled_dot_product_attention``. Query i sees
    keys 0 to i under ``is_causal``, whatever the lengths, as in PyTorch. Leading dimensions
    broadcast; without any, ``(h, q, d)`` is one sequence and ``(q, d)`` one head of it.

    Computes in float32 (float64 for float64 inputs, and on CPU for alpha above 2). Results are the
    same for any number of threads. Gradients exist for ``query``, ``key``, ``value``, ``alpha``, a
    float ``attn_mask``, ``alibi_slopes`` and ``sinks``; those above the first order, and
    forward-mode ones, take a slower path in PyTorch alone, which does materialize the matrix.

    Args:
        query: ``(..., h, q, d)``.
        key: ``(..., h, k, d)``; one head may be shared by all of ``query``. Or ``PackedKeys``,
            without gradients.
        value: ``(..., h, k, e)``. Values of weight zero never matter, be they NaN.
        attn_mask: Broadcasts to ``(..., h, q, k)``. Bool: True where a key takes part. Float:
            added to the scores, ``-inf`` masks a key. Or a causal bias of
            ``torch.nn.attention.bias``.
        alpha: At least 1 and finite; 1 is softmax, 2 is sparsemax. A tensor has one value per head
            ``(h,)`` or broadcasts to ``(..., h, q, 1)``; it receives gradients.
        is_causal: Whether later keys are masked; may be combined with ``attn_mask``.
        scale: Factor of the dot products, finite; ``1 / sqrt(d)`` if None.
        dropout_p: Probability of dropping a weight, drawn from PyTorch's generator; the others are
            multiplied by ``1 / (1 - dropout_p)``.
        key_lengths: Number of keys before the padding, integers ``(...)``, one per sequence. The
            contents of the padding never matter.
        alibi_slopes: Slopes ``(h,)`` of [ALiBi](https://arxiv.org/abs/2108.12409); each score is
            lowered by ``slope * |i + k - q - j|``, the distance of query i and key j with the last
            query at the last key.
        window: Sliding window ``(left, right)``: query i sees keys i - left to i + right, None for
            no limit on a side. Time grows with the window, not with the number of keys.
        softcap: Bound ``c`` of the scores, which become ``c * tanh(score / c)`` before slopes and
            masks, as in [Gemma 2](https://arxiv.org/abs/2408.00118).
        sinks: One score per head ``(h,)`` that takes part in the normalization of every row and
            has no value, as in [GPT-OSS](https://arxiv.org/abs/2508.10925): the weights of a row
            then sum to less than one by the weight of the sink. Receives gradients.
        enable_gqa: Whether ``key`` and ``value`` may have fewer heads ``g`` than ``query``, whose
            head i then reads head ``i // (h // g)``.
        backend: ``"auto"`` follows the device of ``query``; ``"cpu"`` is the compiled kernel for
            CPUs, ``"triton"`` the one for GPUs, ``"torch"`` PyTorch alone.

    Returns:
        ``(..., h, q, e)`` in the dtype of ``query``. Queries that see no key get zeros, with zero
        gradients.

    Example:
        >>> import torch
        >>> query, key = torch.tensor([[3.0]]), torch.tensor([[1.0], [0.8], [-1.0]])
        >>> entmax_attention(query, key, torch.eye(3), alpha=1.5)
        tensor([[0.7073, 0.2927, 0.0000]])
        >>> x = torch.randn(2, 8, 100, 64)
        >>> entmax_attention(x, x, x, is_causal=True).shape
        torch.Size([2, 8, 100, 64])
    """
    backend = check_backend(backend)
    problem, lead = attention_problem(
        query,
        key,
        value,
        alpha=alpha,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        dropout_p=dropout_p,
        key_lengths=key_lengths,
        alibi_slopes=alibi_slopes,
        window=window,
        softcap=softcap,
        sinks=sinks,
        enable_gqa=enable_gqa,
    )
    run = attend if alibi_slopes is None else attend_nearby
    output = run(problem, backend)
    return output if len(lead) == 2 else output.reshape(*lead, *output.shape[2:])


def entmax_attention_weights(
    query: Tensor,
    key: Tensor | PackedKeys,
    *,
    alpha: float | Tensor = 1.5,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    enable_gqa: bool = False,
    backend: str = "auto",
    layout: str | None = None,
) -> Tensor:
    """Return the weights that ``entmax_attention`` gives to the values, as a matrix.

    Weights are those before dropout. Gradients of any order exist. For the nonzero weights alone,
    without the matrix, see ``entmax_attention_support``.

    Args:
        query: ``(..., h, q, d)``.
        key: ``(..., h, k, d)``, or ``PackedKeys``, without gradients.
        alpha: As for ``entmax_attention``, like all that follow.
        attn_mask: Bool or float mask.
        is_causal: Whether query i sees keys 0 to i only.
        scale: Factor of the dot products.
        key_lengths: Number of keys of each sequence.
        alibi_slopes: Slope of each head.
        window: Sliding window ``(left, right)``.
        softcap: Bound of the scores.
        sinks: Score of the sink of each head, whose weight is left out.
        enable_gqa: Whether ``key`` may have fewer heads.
        backend: Kernels to use.
        layout: Deprecated; ``"sparse"`` is ``entmax_attention_support``.

    Returns:
        ``(..., h, q, k)`` in the dtype of ``query``.

    Example:
        >>> import torch
        >>> query, key = torch.tensor([[3.0], [0.5]]), torch.tensor([[1.0], [0.8], [-1.0]])
        >>> entmax_attention_weights(query, key)
        tensor([[0.7073, 0.2927, 0.0000],
                [0.5114, 0.4424, 0.0463]])
    """
    backend = check_backend(backend)
    problem, lead = attention_problem(
        query,
        key,
        key,
        alpha=alpha,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        key_lengths=key_lengths,
        alibi_slopes=alibi_slopes,
        window=window,
        softcap=softcap,
        sinks=sinks,
        enable_gqa=enable_gqa,
    )
    if layout is not None and _is_sparse(layout):
        return _sparse_weights(problem, backend)  # type: ignore[return-value]
    weights = attention_weights(problem, backend)
    return weights.reshape(*lead, *weights.shape[2:])


def _is_sparse(layout: str) -> bool:
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be one of {sorted(_LAYOUTS)}; got {layout!r}.")
    warnings.warn(
        "layout is deprecated: entmax_attention_weights returns the matrix, "
        "entmax_attention_support the nonzero weights.",
        DeprecationWarning,
        stacklevel=3,
    )
    return layout == "sparse"


def _sparse_weights(problem: AttentionProblem, backend: str) -> SparseWeights:
    rows = support(problem, backend)
    return SparseWeights(rows.crow, rows.col, rows.value)


def entmax_attention_support(
    query: Tensor,
    key: Tensor | PackedKeys,
    *,
    alpha: float | Tensor = 1.5,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    enable_gqa: bool = False,
    backend: str = "auto",
) -> SparseWeights:
    """Return the nonzero weights of ``entmax_attention``, without materializing the matrix.

    Weights are those before dropout, without gradients.

    Args:
        query: ``(..., h, q, d)``.
        key: ``(..., h, k, d)``, or ``PackedKeys``, without gradients.
        alpha: As for ``entmax_attention``, like all that follow.
        attn_mask: Bool or float mask.
        is_causal: Whether query i sees keys 0 to i only.
        scale: Factor of the dot products.
        key_lengths: Number of keys of each sequence.
        alibi_slopes: Slope of each head.
        window: Sliding window ``(left, right)``.
        softcap: Bound of the scores.
        sinks: Score of the sink of each head, whose weight is left out.
        enable_gqa: Whether ``key`` may have fewer heads.
        backend: Kernels to use.

    Returns:
        A compressed matrix with a row for each query.

    Example:
        >>> import torch
        >>> query, key = torch.tensor([[3.0], [0.5]]), torch.tensor([[1.0], [0.8], [-1.0]])
        >>> entmax_attention_support(query, key).col
        tensor([0, 1, 0, 1, 2])
    """
    backend = check_backend(backend)
    problem, _ = attention_problem(
        query,
        key,
        key,
        alpha=alpha,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        key_lengths=key_lengths,
        alibi_slopes=alibi_slopes,
        window=window,
        softcap=softcap,
        sinks=sinks,
        enable_gqa=enable_gqa,
    )
    return _sparse_weights(problem, backend)
