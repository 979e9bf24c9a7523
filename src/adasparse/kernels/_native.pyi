"""
The kernels of adasparse, over raw addresses. Use adasparse.kernels.cpu instead.
"""

from collections.abc import Sequence
import enum


def available_isas() -> list[str]:
    """
    Returns the instruction sets compiled in that this processor runs, best first.
    """

def isa() -> str:
    """Returns the instruction set in use."""

def use_isa(name: str) -> None:
    """Switches to another instruction set."""

def screening() -> str:
    """
    Returns whether attention screens its scores in int8: auto, off or forced.
    """

def use_screening(name: str) -> None:
    """Switches the screening of scores; results stay the same."""

def use_large_pages(*, data: int, bytes: int, threads: int) -> None:
    """
    Asks for large pages behind memory that is about to be written, if it is large.
    """

LARGE_RESULT: int = 8388608

has_openmp: bool = True

class Type(enum.Enum):
    """Element type of tensors."""

    FLOAT32 = 0

    FLOAT64 = 1

    BFLOAT16 = 2

    FLOAT16 = 3

def entmax_forward(*, type: Type, scores: int, weights: int, alpha: int, alpha_stride: int, rows: int, n: int, threads: int) -> None: ...

def entmax_backward(*, type: Type, weights: int, grad: int, grad_scores: int, grad_alpha: int, alpha: int, alpha_stride: int, rows: int, n: int, threads: int) -> None: ...

class Target:
    """Targets of the rows of a loss."""

    def __init__(self, *, index: int, probability: int, weight: int, ignore_index: int, smoothing: float) -> None: ...

def loss_forward(*, type: Type, scores: int, loss: int, state: int, target: Target, alpha: int, alpha_stride: int, rows: int, n: int, threads: int) -> None: ...

def loss_backward(*, type: Type, scores: int, state: int, grad: int, grad_scores: int, grad_alpha: int, target: Target, alpha: int, alpha_stride: int, rows: int, n: int, threads: int) -> None: ...

class MaskKind(enum.Enum):
    """Meaning of an attention mask."""

    NONE = 0

    BOOL = 1

    ADDED = 2

class AttentionInput:
    """One attention call: see AttentionProblem."""

    def __init__(self, *, type: Type, batch: int, heads: int, groups: int, q: int, k: int, d: int, e: int, query: int, query_strides: Sequence[int], key: int, key_strides: Sequence[int], value: int, value_strides: Sequence[int], codes: int = 0, code_strides: Sequence[int] = [0, 0, 0, 0], code_bounds: int = 0, code_bound_strides: Sequence[int] = [0, 0, 0, 0], alpha: int, alpha_strides: Sequence[int], mask_kind: MaskKind = MaskKind.NONE, mask_type: Type = Type.FLOAT32, mask: int = 0, mask_strides: Sequence[int] = [0, 0, 0, 0], key_lengths: int = 0, slopes: int = 0, sinks: int = 0, scale: float, softcap: float = 0.0, is_causal: bool = False, window_left: int = -1, window_right: int = -1, window_position: int = 0, dropout_p: float = 0.0, seed: int = 0, threads: int) -> None: ...

class Support:
    """Support of all rows, until it moves into tensors."""

    def __init__(self, input: AttentionInput) -> None: ...

    def arrange(self, *, input: AttentionInput, offsets: int, is_dense: int, keeps_all: bool = False) -> int:
        """
        Decides which heads are dense, fills offsets and is_dense and returns the number of entries of the other heads.
        """

    def move(self, *, offsets: int, is_dense: int, index: int, weight: int) -> None:
        """Moves the entries to where offsets say."""

CODE_KEYS: int = 16

def code_keys(*, type: Type, batch: int, groups: int, first: int, n: int, d: int, key: int, key_strides: Sequence[int], codes: int, code_strides: Sequence[int], code_bounds: int, code_bound_strides: Sequence[int], threads: int) -> None:
    """
    Codes keys from `first` on, a multiple of CODE_KEYS, as int8 with bounds of the error.
    """

def has_code_products() -> bool:
    """Whether this processor multiplies codes faster than float32."""

SUPPORT_BYTES: int = 536870912

def saves_weights(input: AttentionInput) -> bool:
    """Whether the forward saves weights whole, not as a support."""

def attention_forward(input: AttentionInput, *, out: int, out_strides: Sequence[int], weights: int = 0, state: int = 0, sink_weights: int = 0, support: Support | None = None, support_bytes: int = 536870912, rescored: int = 0) -> None: ...

def attention_support(input: AttentionInput, *, support: Support) -> None: ...

def attention_scores(input: AttentionInput) -> None:
    """Computes scores and nothing else, to measure them."""

class AttentionBackward:
    """One backward call: what the forward saved."""

    def __init__(self, input: AttentionInput, *, grad: int, grad_strides: Sequence[int], weights: int = 0, state: int = 0, offsets: int = 0, index: int = 0, weight: int = 0, is_dense: int = 0, sink_weights: int = 0, grad_query: int, grad_query_strides: Sequence[int], grad_key: int, grad_key_strides: Sequence[int], grad_value: int, grad_value_strides: Sequence[int], grad_alpha: int = 0, grad_slopes: int = 0, grad_sinks: int = 0, grad_mask: int = 0, grad_mask_strides: Sequence[int] = [0, 0, 0, 0]) -> None: ...

def attention_backward(call: AttentionBackward) -> None: ...

class PackedAttention:
    """Attention in a packed batch."""

    def __init__(self, input: AttentionInput, *, query: Sequence[int], key: Sequence[int], used: Sequence[int], table: int = 0, pages: int = 0) -> None: ...

    def weights_size(self) -> int:
        """Numbers in the weights of sequences that save them whole."""

    def forward(self, *, out: int, out_strides: Sequence[int], is_saved: bool, weights: int = 0, state: int = 0, sink_weights: int = 0, support_bytes: int = 536870912) -> None: ...

    def arrange(self, *, offsets: int, is_dense: int) -> int:
        """
        Fills offsets and is_dense and returns the number of entries of all supports.
        """

    def move(self, *, offsets: int, is_dense: int, index: int, weight: int) -> None:
        """Moves the entries to where offsets say."""

    def backward(self, call: AttentionBackward) -> None: ...
