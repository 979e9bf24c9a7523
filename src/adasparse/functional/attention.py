"""Attention of which most weights are exactly zero, at the cost of those that are not."""

from typing import Literal, NamedTuple, overload

from torch import Tensor

from adasparse.functional.attention_inputs import prepare
from adasparse.functional.attention_routes import attend, support, weigh
from adasparse.functional.entmax import check_backend

LAYOUTS = ("dense", "sparse")


class SparseWeights(NamedTuple):
    """Weights as a compressed matrix with a row for each query ``(..., h, q)`` in order.

    ``torch.sparse_csr_tensor(*weights, (rows, k))`` makes a tensor of them.

    Args:
        crow: ``(rows + 1,)``: where each row begins, and the end.
        col: ``(n,)``: the key of each entry, rising within a row.
        value: ``(n,)``: its weight.
    """

    crow: Tensor
    col: Tensor
    value: Tensor


def entmax_attention(
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
    enable_gqa: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Attend to few keys: ``entmax(scale * query @ key.mT) @ value``, never built as a matrix.

    The sparse counterpart of ``torch.nn.functional.scaled_dot_product_attention``. Query i sees
    keys 0 to i under ``is_causal``, whatever the lengths, as in PyTorch. Leading dimensions
    broadcast; without any, ``(h, q, d)`` is one sequence and ``(q, d)`` one head of it.

    Computes in float32 (float64 for float64 inputs, and on CPU for alpha above 2). Results are the
    same for any number of threads. Gradients exist for ``query``, ``key``, ``value``, ``alpha``, a
    float ``attn_mask`` and ``alibi_slopes``; those above the first order take a slower path in
    plain PyTorch, which does build the matrix.

    Args:
        query: ``(..., h, q, d)``.
        key: ``(..., h, k, d)``; one head may serve all of ``query``.
        value: ``(..., h, k, e)``.
        alpha: At least 1; 1 is softmax, 2 is sparsemax. A tensor has one value per head ``(h,)``
            or broadcasts to ``(..., h, q, 1)``; it receives gradients.
        attn_mask: Broadcasts to ``(..., h, q, k)``. Bool: True where a key takes part. Float:
            added to the scores, ``-inf`` leaving a key out.
        is_causal: Whether later keys are left out; may go along with ``attn_mask``.
        scale: Factor of the dot products, ``1 / sqrt(d)`` if None.
        dropout_p: Share of the weights to drop at random, drawn from PyTorch's generator; the
            others grow by ``1 / (1 - dropout_p)``.
        key_lengths: Integers ``(...)``, one per sequence: how many keys come before the padding.
            What the padding holds never matters.
        alibi_slopes: ``(h,)``; each score loses ``slope * |i + k - q - j|``, the distance of query
            i and key j with the last query at the last key.
        enable_gqa: Whether ``key`` and ``value`` may have fewer heads ``g`` than ``query``, whose
            head i then reads head ``i // (h // g)``.
        backend: ``"auto"`` follows the device of ``query``; ``"native"`` is the compiled CPU
            kernel, ``"plain"`` PyTorch alone.

    Returns:
        ``(..., h, q, e)`` in the dtype of ``query``. Queries that see no key get zeros, with zero
        gradients.

    Example:
        >>> query, key = torch.tensor([[3.0]]), torch.tensor([[1.0], [0.8], [-1.0]])
        >>> entmax_attention(query, key, torch.eye(3), alpha=1.5)
        tensor([[0.7073, 0.2927, 0.0000]])
        >>> x = torch.randn(2, 8, 100, 64)
        >>> entmax_attention(x, x, x, is_causal=True).shape
        torch.Size([2, 8, 100, 64])
    """
    check_backend(backend)
    inputs, lead = prepare(
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
        enable_gqa=enable_gqa,
    )
    output = attend(inputs, backend)
    return output if len(lead) == 2 else output.reshape(*lead, *output.shape[2:])


@overload
def entmax_attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    alpha: float | Tensor = ...,
    attn_mask: Tensor | None = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    key_lengths: Tensor | None = ...,
    alibi_slopes: Tensor | None = ...,
    enable_gqa: bool = ...,
    backend: str = ...,
    layout: Literal["dense"] = ...,
) -> Tensor: ...


@overload
def entmax_attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    alpha: float | Tensor = ...,
    attn_mask: Tensor | None = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    key_lengths: Tensor | None = ...,
    alibi_slopes: Tensor | None = ...,
    enable_gqa: bool = ...,
    backend: str = ...,
    layout: Literal["sparse"],
) -> SparseWeights: ...


def entmax_attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    alpha: float | Tensor = 1.5,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    key_lengths: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    enable_gqa: bool = False,
    backend: str = "auto",
    layout: str = "dense",
) -> Tensor | SparseWeights:
    """Return the weights that ``entmax_attention`` gives to the values, before dropout.

    Args:
        query: ``(..., h, q, d)``.
        key: ``(..., h, k, d)``.
        alpha: As for ``entmax_attention``, like all that follow.
        attn_mask: Bool or float.
        is_causal: Whether query i sees keys 0 to i only.
        scale: Factor of the dot products.
        key_lengths: One integer per sequence.
        alibi_slopes: One per head.
        enable_gqa: Whether ``key`` may have fewer heads.
        backend: Which kernels to use.
        layout: ``"dense"`` gives the matrix, with gradients of any order. ``"sparse"`` gives the
            entries that are not zero, without gradients, and never builds the matrix.

    Returns:
        ``(..., h, q, k)`` in the dtype of ``query``, or ``SparseWeights``.

    Example:
        >>> query, key = torch.tensor([[3.0], [0.5]]), torch.tensor([[1.0], [0.8], [-1.0]])
        >>> entmax_attention_weights(query, key)
        tensor([[0.7073, 0.2927, 0.0000],
                [0.5114, 0.4424, 0.0463]])
        >>> entmax_attention_weights(query, key, layout="sparse").col
        tensor([0, 1, 0, 1, 2])
    """
    check_backend(backend)
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {sorted(LAYOUTS)}; got {layout!r}.")
    inputs, lead = prepare(
        query,
        key,
        key,
        alpha=alpha,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        dropout_p=0.0,
        key_lengths=key_lengths,
        alibi_slopes=alibi_slopes,
        enable_gqa=enable_gqa,
    )
    if layout == "sparse":
        return SparseWeights(*support(inputs, backend))
    weights = weigh(inputs, backend)
    return weights.reshape(*lead, *weights.shape[2:])
