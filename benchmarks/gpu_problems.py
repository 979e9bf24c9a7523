"""Problems without data, and the launches that they lead to."""

from dataclasses import replace

import torch

from adasparse.kernels.problem import AttentionProblem, LossProblem
from adasparse.kernels.triton import ahead, decode, tuning
from adasparse.kernels.triton.attention import attention_backward, attention_forward
from adasparse.kernels.triton.losses import loss_backward, loss_forward
from adasparse.kernels.triton.rows import entmax_backward, entmax_forward

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
#: Names of the maps, and the float alpha that selects each; None is a tensor per head.
MAPS = {"softmax": 1.0, "1.5": 1.5, "2": 2.0, "general": None}


def problem(
    dim: int,
    dtype: torch.dtype,
    alpha: float | None,
    *,
    heads: int = 8,
    length: int = 4096,
    is_causal: bool = False,
) -> AttentionProblem:
    """Two sequences of ``length`` tokens; ``alpha`` None is a tensor with one for each head."""

    def tensor() -> torch.Tensor:
        return torch.empty(2, heads, length, dim, dtype=dtype, device="meta")

    if alpha is None:
        alphas = torch.empty(1, heads, 1, 1, dtype=torch.float64, device="meta")
    else:
        alphas = torch.full((1, 1, 1, 1), alpha, dtype=torch.float64)
    return AttentionProblem(
        query=tensor(), key=tensor(), value=tensor(), alpha=alphas, scale=0.1, is_causal=is_causal
    )


def with_every_option(plain: AttentionProblem) -> AttentionProblem:
    """The same with every option of a batch that is not packed, each with its gradient."""
    b, h, q, _ = plain.query.shape
    per_head = torch.empty(h, dtype=torch.float64, device="meta")
    return replace(
        plain,
        mask=torch.empty(b, 1, q, plain.key.shape[2], device="meta"),
        key_lengths=torch.empty(b, dtype=torch.int64, device="meta"),
        slopes=per_head,
        sinks=per_head,
        seed=torch.empty((), dtype=torch.int64, device="meta"),
        dropout_p=0.1,
        is_causal=True,
        window_left=100,
        softcap=30.0,
    )


def packed(plain: AttentionProblem) -> AttentionProblem:
    """A packed batch of two sequences."""
    _, h, n, _ = plain.query.shape
    query, key, value = (
        x.reshape(1, h, 2 * n, x.shape[3]) for x in (plain.query, plain.key, plain.value)
    )
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    return replace(
        plain, query=query, key=key, value=value, cu_seq_q=starts, cu_seq_k=starts, max_q=n, max_k=n
    )


def packed_with_every_option(plain: AttentionProblem) -> AttentionProblem:
    """A packed batch with every option that it may have, each with its gradient."""
    return replace(packed(with_every_option(plain)), mask=None)


def in_pages(plain: AttentionProblem, page_size: int = 64) -> AttentionProblem:
    """A packed batch of two sequences whose keys and values lie in pages."""
    _, h, n, _ = plain.query.shape
    pages = -(-n // page_size)
    key, value = (
        x.new_empty(40, page_size, h, x.shape[3]).transpose(1, 2) for x in (plain.key, plain.value)
    )
    return replace(
        packed(plain),
        key=key,
        value=value,
        cu_seq_k=None,
        block_table=torch.empty(2, pages, dtype=torch.int32, device="meta"),
        key_lengths=torch.empty(2, dtype=torch.int64, device="meta"),
    )


def launches(
    target: str, attention: AttentionProblem, tiles: tuning.Tiles | None = None
) -> list[ahead.Call]:
    """Launches of a forward and a backward with all gradients, that of a tensor alpha included."""
    needs = {"query", "key", "value"}
    if attention.alpha.device.type == "meta":
        needs.add("alpha")
    needs |= {x for x in ("mask", "slopes", "sinks") if getattr(attention, x) is not None}
    with ahead.recorded(target, tiles) as calls:
        out, saved = attention_forward(attention, keep=True)
        attention_backward(attention, saved, torch.empty_like(out), frozenset(needs))
    return calls


def most_rows(dim: int, dtype: torch.dtype) -> int:
    """Most rows of a tile of decoding: queries times query heads per key head."""
    return min(decode.MAX_ROWS, decode.MAX_BYTES // (dim * dtype.itemsize))


def decoding_launches(target: str, dim: int, dtype: torch.dtype, rows: int) -> list[ahead.Call]:
    """Launches of a step of decoding with ``rows`` rows, a multiple of 4, for each key head."""
    plain = problem(dim, dtype, 1.5)
    b, g, _, _ = plain.key.shape
    query = plain.query.new_empty(b, g * rows // 4, 4, dim)
    with ahead.recorded(target) as calls:
        attention_forward(replace(plain, query=query), keep=False)
    return calls


def row_launches(
    target: str, dtype: torch.dtype, alpha: float | None, *, num_rows: int, length: int
) -> list[ahead.Call]:
    """Launches of ``entmax`` and its loss, forward and backward; ``alpha`` None is one a row."""
    scores = torch.empty(num_rows, length, dtype=dtype, device="meta")
    alphas = torch.empty(num_rows, dtype=torch.float64, device="meta")
    if alpha is not None:
        alphas = torch.tensor(alpha, dtype=torch.float64)
    index = torch.empty(num_rows, dtype=torch.int64, device="meta")
    losses = LossProblem(scores=scores, alpha=alphas, index=index)
    is_tensor = alpha is None
    with ahead.recorded(target) as calls:
        weights = entmax_forward(scores, alphas)
        entmax_backward(weights, weights, alphas, with_alpha=is_tensor)
        loss, saved = loss_forward(losses)
        loss_backward(losses, saved, loss, with_alpha=is_tensor)
    return calls
