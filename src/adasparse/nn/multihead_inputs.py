"""Checks of the inputs of multi-head attention."""

import torch
from torch import Tensor


class ShapeError(ValueError, AssertionError):
    """Tensors whose shapes do not fit; PyTorch's module raises the second of these for them."""


def check_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    features: tuple[int, int, int],
    num_heads: int,
    batch_first: bool,
) -> None:
    """Raise unless the shapes fit; ``features`` are the last sizes of query, key and value."""
    shapes = query.shape, key.shape, value.shape
    if query.dim() not in (2, 3):
        raise ShapeError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.dim()}-D query tensor of shape {tuple(query.shape)}."
        )
    if not query.dim() == key.dim() == value.dim():
        raise ShapeError(
            f"For a {query.dim()}-D query, expected `key` and `value` to be {query.dim()}-D but "
            f"found {key.dim()}-D and {value.dim()}-D tensors respectively: query, key and value "
            "must all be 2-D, or 3-D with a batch; "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}."
        )
    if tuple(shape[-1] for shape in shapes) != features or key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(
            "query, key and value must all be 2-D, or 3-D with a batch, and end in the sizes "
            f"{', '.join(map(str, features))}, key and value being equally long; "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}."
        )
    is_batched = query.dim() == 3
    q, b = query.shape[:2] if is_batched else (query.shape[0], 1)
    k, key_batch = key.shape[:2] if is_batched else (key.shape[0], 1)
    if batch_first and is_batched:
        q, b, k, key_batch = b, q, key_batch, k
    if b != key_batch:
        raise ValueError(
            f"query and key must agree on the batch, dimension {0 if batch_first else 1} of both "
            f"as batch_first={batch_first}; got {b} and {key_batch}."
        )
    _check_mask("key_padding_mask", key_padding_mask, (b, k) if is_batched else (k,))
    _check_mask("attn_mask", attn_mask, (q, k), (b * num_heads, q, k))


def _check_mask(name: str, mask: Tensor | None, *shapes: tuple[int, ...]) -> None:
    if mask is None:
        return
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"{name} must be bool, True where a key is masked, or floating point, to add; "
            f"got {mask.dtype}."
        )
    ranks = [len(shape) for shape in shapes]
    if mask.dim() not in ranks:
        accepted = ", ".join(["`None`", *(f"{rank}-D" for rank in ranks[:-1])])
        raise ShapeError(
            f"expected `{name}` to be {accepted} or {ranks[-1]}-D but found {mask.dim()}-D tensor "
            f"instead, of shape {tuple(mask.shape)}; it must have the shape "
            f"{' or '.join(map(str, shapes))}."
        )
    if tuple(mask.shape) not in shapes:
        # Those of one rank are told in PyTorch's words, too.
        wanted = next(shape for shape in shapes if len(shape) == mask.dim())
        accepted = " or ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"{name} must have the shape {accepted}; got {tuple(mask.shape)}. "
            f"Expected `{name}` shape to be {wanted}."
        )


def check_nested(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    batch_first: bool,
) -> None:
    """Raise unless nested tensors are supported."""
    if query.dim() != 3:
        raise ShapeError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.dim()}-D query tensor."
        )
    are_nested = key.is_nested and value.is_nested
    has_mask = key_padding_mask is not None or attn_mask is not None
    if not (are_nested and batch_first) or has_mask:
        raise ValueError(
            "nested tensors are supported for query, key and value together, without masks and "
            f"with batch_first=True; got batch_first={batch_first}, "
            f"{'a nested' if are_nested else 'another'} key and value, "
            f"{'and a' if has_mask else 'no'} mask. "
            "A TransformerEncoder passes none with enable_nested_tensor=False."
        )
