# mypy: disable-error-code="import-untyped, import-not-found"
"""Arguments of the attention kernels from an attention problem."""

import functools
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from adasparse.kernels.problem import AttentionProblem
from adasparse.kernels.triton import tuning
from adasparse.kernels.triton.arguments import Factors, Flags, Inputs, Sizes, Strides, encode

#: Values of alpha that have a map of their own; the others take number 3 or, on CUDA, 4.
_KINDS = {1.0: 0, 1.5: 1, 2.0: 2}
#: Stride, in elements, from which offsets in a tile of 64 rows may not fit in 32 bits.
_MAX_STRIDE = 2**31 // 64
#: Smallest scale of scores that are kept as bare products: times ``maps.MASKED`` it is far below
#: every score.
_MIN_RAW_SCALE = 1e-9


def _device_of(arguments: Iterable[Any]) -> torch.device:
    """Device of the first tensor, which may be the first entry of a tuple."""
    for x in arguments:
        first = x[0] if isinstance(x, tuple) and x else x
        if isinstance(first, Tensor):
            return first.device
    raise AssertionError("a kernel has a tensor among its arguments")


def run(kernel: Any, programs: int, *arguments: Any, warps: int, stages: int, **named: Any) -> None:
    """Launch a kernel on the device of its first tensor and that device's current stream.

    Only axis 0 of the grid is used, since the others end at 65,535 programs.
    """
    if not programs:
        return
    device = _device_of((*arguments, *named.values()))
    # Triton launches on the current device, whatever its arguments.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[(programs,)](*arguments, **named, num_warps=warps, num_stages=stages)


def padded(dim: int) -> int:
    """Smallest tile size that holds ``dim``: a power of two from 16 on."""
    return max(16, 1 << (dim - 1).bit_length())


def general_kind(target: str) -> int:
    """Number of the map for any alpha; see ``maps``."""
    return 4 if target.startswith("sm_") else 3


def is_readable(alpha: Tensor) -> bool:
    """Whether alpha is one number in CPU memory, so that its value may decide."""
    return alpha.numel() == 1 and alpha.device.type == "cpu"


def kind_of(alpha: Tensor, target: str) -> int:
    """Number of the map for ``alpha``, from its value where that is in CPU memory."""
    if is_readable(alpha):
        return _KINDS.get(float(alpha), general_kind(target))
    return general_kind(target)


def precision_of(dtype: torch.dtype, device: torch.device) -> str | None:
    """Precision of float32 products, as torch's switch for matrix products has it."""
    if dtype != torch.float32:
        return None
    if not tuning.has_tf32(device):
        return "ieee"
    # Since PyTorch 2.9 the older switch raises an error where the newer one was set.
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        return "tf32" if matmul.fp32_precision == "tf32" else "ieee"
    return "tf32" if matmul.allow_tf32 else "ieee"


def eps_on(device: torch.device, alpha: Tensor) -> Tensor:
    """``alpha - 1`` in float32 on a device, NaN below 0: the maps need an alpha of 1 or more.

    An alpha in CPU memory costs no synchronization.
    """
    if device.type != "cpu" and is_readable(alpha):
        return torch.full(alpha.shape, float(alpha) - 1, dtype=torch.float32, device=device)
    eps = (alpha.double() - 1).to(device, torch.float32, non_blocking=True)
    return eps.masked_fill(eps < 0, float("nan"))


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _within_reach(x: Tensor, dims: tuple[int, ...] = (2,)) -> Tensor:
    """``x``, copied if the strides of ``dims`` are too large for the offsets in a tile."""
    is_far = any(x.shape[n] > 1 and x.stride(n) >= _MAX_STRIDE for n in dims)
    return x.contiguous() if is_far else x


def _strides(x: Tensor | None, rank: int) -> tuple[int, ...]:
    """Strides of the first dimensions, 0 where they do not matter."""
    if x is None:
        return (0,) * rank
    return tuple(
        0 if size == 1 else stride
        for size, stride in zip(x.shape[:rank], x.stride()[:rank], strict=True)
    )


def _window(problem: AttentionProblem, q: int, k: int) -> tuple[int | None, int | None]:
    """Keys that query i sees before and after key i, negative if it is elsewhere; or None.

    At most ``q + k``, which reaches every key from every query: kernels count in 32 bits.
    """

    def bounded(n: int | None) -> int | None:
        return None if n is None else max(-q - k, min(n, q + k))

    left, right = problem.window_left, 0 if problem.is_causal else problem.window_right
    return (
        bounded(None if left is None else left - problem.position),
        bounded(None if right is None else right + problem.position),
    )


def shape_of(problem: AttentionProblem) -> tuple[int, int, int, int, int]:
    """Sizes b, h, g, q, k: those of a packed batch are sequences and the most of one sequence."""
    (b, h, q, _), (_, g, k, _) = problem.query.shape, problem.value.shape
    if problem.cu_seq_q is None:
        return b, h, g, q, k
    sequences = problem.cu_seq_q.shape[0] - 1
    max_q = _longest(problem.cu_seq_q) if problem.max_q is None else problem.max_q
    if problem.max_k is not None:
        max_k = problem.max_k
    elif problem.block_table is not None:
        max_k = problem.block_table.shape[1] * k
    else:
        assert problem.cu_seq_k is not None
        max_k = _longest(problem.cu_seq_k)
    return sequences, h, g, max_q, max_k


def _longest(starts: Tensor) -> int:
    """Length of the longest sequence, for which a device has to be waited for."""
    return int((starts[1:] - starts[:-1]).max())


def _packed_sizes(problem: AttentionProblem) -> dict[str, int]:
    """Further sizes of a packed batch, encoded."""
    if problem.cu_seq_q is None:
        return {}
    sizes = {"total_q": problem.query.shape[2], "total_k": problem.key.shape[2]}
    if problem.block_table is not None:
        sizes |= {"num_pages": problem.block_table.shape[1], "page_size": problem.key.shape[2]}
    return {name: encode(n) for name, n in sizes.items()}


class Launch(NamedTuple):
    """Arguments that all attention kernels of one problem share."""

    inputs: Inputs
    sizes: Sizes
    strides: Strides
    factors: Factors
    flags: Flags
    tiles: tuning.Tiles
    target: str
    shape: tuple[int, int, int, int, int]  # b, h, g, q, k

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that every kernel begins with."""
        return self.inputs, self.sizes, self.strides, self.factors

    @property
    def blocks(self) -> tuple[int, int]:
        """Number of blocks of queries and of keys."""
        return triton.cdiv(self.shape[3], self.tiles.block_m), triton.cdiv(
            self.shape[4], self.tiles.block_n
        )

    @property
    def words(self) -> tuple[int, int]:
        """Number of words that hold a bit for each block of queries, and of keys."""
        q_blocks, k_blocks = self.blocks
        return triton.cdiv(q_blocks, 32), triton.cdiv(k_blocks, 32)

    def with_general_map(self, alpha: Tensor) -> "Launch":
        """Return the same problem with the map that has a gradient with respect to alpha."""
        flags = self.flags._replace(kind=general_kind(self.target))
        device = self.inputs.query.device
        eps = _eps_rows(alpha, self.shape, device, self.flags.is_packed)
        return self._replace(flags=flags, inputs=self.inputs._replace(eps=eps))

    def run(self, kernel: Any, name: str, programs: int, *arguments: Any, **constants: Any) -> None:
        """Launch an attention kernel with the warps and stages of ``name``."""
        warps, stages = getattr(self.tiles, name)
        run(kernel, programs, *self.arguments, *arguments, warps=warps, stages=stages, **constants)


def _eps_rows(
    alpha: Tensor, shape: tuple[int, ...], device: torch.device, is_packed: bool
) -> Tensor:
    """``alpha - 1`` of each head, or of each query where alpha differs between them."""
    b, h = shape[:2]
    if alpha.shape[2] != 1:  # that of a packed batch has every query of it
        b, q = (1, alpha.shape[2]) if is_packed else (b, shape[3])
        return eps_on(device, alpha).expand(b, h, q, 1).contiguous()
    return eps_on(device, alpha).expand(b, h, 1, 1).contiguous()


def prepare(problem: AttentionProblem) -> Launch:
    """Collect the arguments of the kernels; the tensors stay where they are."""
    if problem.query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(
            "the Triton kernels compute in float16, bfloat16 or float32; got "
            f"{problem.query.dtype}, which alpha above 2 needs, too. backend='torch' supports it."
        )
    device = problem.query.device
    d, e = problem.query.shape[3], problem.value.shape[3]
    shape = b, h, g, q, k = shape_of(problem)
    is_packed = problem.cu_seq_q is not None
    query, key, value = (
        _within_reach(x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous())
        for x in (problem.query, problem.key, problem.value)
    )
    mask = problem.mask
    if mask is not None:
        mask = _within_reach(mask, (2, 3)).expand(b, h, q, k)
        mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    mask_kind = 0 if problem.mask is None else 1 if problem.mask.dtype == torch.bool else 2
    left, right = _window(problem, q, k)
    target = tuning.target_of(device)
    kind = kind_of(problem.alpha, target)
    options = (problem.mask, problem.slopes, problem.softcap, problem.seed)
    tiles = tuning.tiles_for(
        target,
        max(padded(d), padded(e)),
        problem.query.dtype,
        num_options=sum(x is not None for x in options),
    )
    is_dropped = problem.seed is not None
    strides = [_strides(x, 3) for x in (query, key, value)]
    is_aligned = all(n % 16 == 0 for x in strides for n in x)
    unit = 16 if is_aligned else 1
    flags = Flags(
        kind=kind,
        is_mixed=kind >= 3 and problem.alpha.shape[2] == 1 and not is_readable(problem.alpha),
        per_query=problem.alpha.shape[2] != 1,
        has_left=left is not None,
        has_right=right is not None,
        has_slopes=problem.slopes is not None,
        has_lengths=problem.key_lengths is not None,
        mask=mask_kind,
        is_raw=problem.slopes is None
        and mask_kind != 2
        and problem.scale >= _MIN_RAW_SCALE
        and problem.softcap is None,
        has_dropout=is_dropped,
        precision=precision_of(query.dtype, device),
        is_aligned=is_aligned,
        d=padded(d),
        e=padded(e),
        has_pad=padded(d) != d,
        has_pad_v=padded(e) != e,
        block_m=tiles.block_m,
        block_n=tiles.block_n,
        has_softcap=problem.softcap is not None,
        has_sinks=problem.sinks is not None,
        is_packed=is_packed,
        has_pages=problem.block_table is not None,
    )
    send = functools.partial(Tensor.to, device=device, non_blocking=True)
    keep = 1 / (1 - problem.dropout_p) if problem.dropout_p < 1 else 0.0
    return Launch(
        inputs=Inputs(
            query=query,
            key=key,
            value=value,
            eps=_eps_rows(problem.alpha, shape, device, is_packed) if kind >= 3 else None,
            mask=mask,
            lengths=problem.key_lengths,
            slopes=None if problem.slopes is None else send(problem.slopes.float()),
            seed=None if problem.seed is None else send(problem.seed),
            sinks=None if problem.sinks is None else send(problem.sinks.float()),
            starts_q=_contiguous(problem.cu_seq_q),
            starts_k=_contiguous(problem.cu_seq_k),
            pages=_contiguous(problem.block_table),
        ),
        sizes=Sizes(
            num_heads=encode(h),
            num_kv_heads=encode(g),
            num_q=encode(q),
            num_k=encode(k),
            dim=encode(d),
            dim_v=encode(e),
            left=encode(left or 0),
            right=encode(right or 0),
            drop_threshold=encode(min(int(problem.dropout_p * 2**32), 0xFFFFFFFF)),
            **_packed_sizes(problem),
        ),
        strides=Strides(
            query=tuple(encode(n // unit) for n in strides[0]),
            key=tuple(encode(n // unit) for n in strides[1]),
            value=tuple(encode(n // unit) for n in strides[2]),
            mask=tuple(encode(n) for n in _strides(mask, 4)),
        ),
        factors=Factors(problem.scale, keep, problem.softcap),
        flags=flags,
        tiles=tiles,
        target=target,
        shape=shape,
    )
