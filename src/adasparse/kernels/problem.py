"""The problems that kernels solve, their gradients, and access to tensors by field name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

import torch
from torch import Tensor

Record = TypeVar("Record")
#: Names of the fields of traceable dataclasses.
_TRACED: dict[type, tuple[str, ...]] = {}


@cache
def field_names(record: Any) -> tuple[str, ...]:
    """Return the names of all fields of a dataclass, in order."""
    assert is_dataclass(record)
    return tuple(field.name for field in fields(record))


def traceable(record: type[Record]) -> type[Record]:
    """Let torch.compile trace ``with_tensors``; torch 2.6 traces neither vars() nor fields()."""
    _TRACED[record] = field_names(cast(Any, record))
    return record


@traceable
@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionProblem:
    """One attention call with checked arguments.

    The score of query i and key j is ``scale <q_i, k_j>``, bounded by ``softcap``, minus ``slope
    |i + k - q - j|``, plus the mask where that is float. Query i is at position ``p = position +
    i`` among the keys. A key is masked where a bool mask is False, from ``key_lengths`` of its
    sequence on, after ``p`` if causal, and outside the window from ``p - window_left`` to ``p +
    window_right``. A sink takes part in the normalization of each row of its head as one more key,
    which nothing masks, and whose value is zero; weights and supports leave it out.

    A *packed* batch of ``n`` sequences has ``cu_seq_q``. Its queries lie one after another in
    ``query (1, h, total_q, d)``, those of sequence ``s`` from ``cu_seq_q[s]`` to ``cu_seq_q[s +
    1]``, and its keys and values alike by ``cu_seq_k``, or in pages by ``block_table``. Each
    sequence is the problem that ``adasparse.kernels.packed.unpacked`` returns: its queries ``q_s``
    and the ``k_s`` keys that it uses alone, the last query at the last key (``position = k_s -
    q_s``), without a mask.

    ``functional`` fills it with the caller's dtypes. Kernels receive it converted: one dtype
    with a contiguous last dimension, which is half precision only where they accept it, a float
    mask in that dtype or the one computed in, ``alpha`` of rank 4, ``slopes`` and ``sinks`` in
    float64.

    Args:
        query: ``(b, h, q, d)``.
        key: ``(b, g, k, d)``; query head ``i`` reads key head ``i // (h // g)``.
        value: ``(b, g, k, e)``.
        alpha: Of rank 0, ``(h,)``, or broadcastable to ``(b, h, q, 1)``; kernels get the last. A
            single number may be in CPU memory, where its value can choose a kernel.
        mask: Bool or float, broadcastable to ``(b, h, q, k)``, or None.
        slopes: ALiBi slopes ``(h,)``, or None.
        sinks: Score of the sink of each head ``(h,)``, or None; ``-inf`` for a head without one.
        key_lengths: ``(b,)`` in int64, or None; ``(n,)`` if packed, where sequence ``s`` uses the
            first ``key_lengths[s]`` of its keys.
        cu_seq_q: Offsets of the queries of a packed batch ``(n + 1,)`` in int32, from 0 to
            ``total_q``; None if the batch is not packed.
        cu_seq_k: Offsets of the keys of a packed batch, from 0 to ``total_k``; None with a
            ``block_table``.
        block_table: ``(n, pages)`` in int32: page ``i`` of a sequence is page ``block_table[s,
            i]`` of ``key (total_pages, g, page_size, d)`` and of ``value``; its keys are those of
            its pages up to ``key_lengths[s]``. Has no gradients with respect to keys and values.
        seed: Seed of the dropout, int64 of rank 0 on the device of the query or in CPU memory; None
            without dropout.
        scale: Factor of the dot products.
        is_causal: Whether query ``i`` sees keys ``0`` to ``i`` only.
        dropout_p: Probability of dropping a weight; the others are divided by ``1 - dropout_p``.
        window_left: Number of keys before position ``i`` that query ``i`` sees; None for all.
        window_right: Number of keys after it; None for all.
        codes: Codes of the keys in int8, see ``kernels/cpu/codes.py``, or None. They change no
            result, and backends may ignore them.
        code_bounds: Bounds of the error of the codes, or None.
        position: Position of query 0 among the keys, for causal masks and windows; may be
            negative.
        softcap: Bound ``c`` of ``c tanh(score / c)``, above 0; None for none.
        max_q: At least the number of queries of each sequence of a packed batch, or None.
        max_k: At least the number of keys that each sequence of a packed batch uses, or None.
        highest_alpha: Bound of ``alpha`` that holds whatever its values, for exported graphs, which
            cannot read them; None if there is none. Kernels ignore it.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    alpha: Tensor
    mask: Tensor | None = None
    slopes: Tensor | None = None
    sinks: Tensor | None = None
    key_lengths: Tensor | None = None
    cu_seq_q: Tensor | None = None
    cu_seq_k: Tensor | None = None
    block_table: Tensor | None = None
    seed: Tensor | None = None
    scale: float
    is_causal: bool = False
    dropout_p: float = 0.0
    window_left: int | None = None
    window_right: int | None = None
    codes: Tensor | None = None
    code_bounds: Tensor | None = None
    position: int = 0
    softcap: float | None = None
    max_q: int | None = None
    max_k: int | None = None
    highest_alpha: float | None = None

    def sequence(self, i: int) -> "AttentionProblem":
        """Return the problem of sequence ``i`` alone of a batch that is not packed."""
        one = slice(i, i + 1)
        mask, lengths = self.mask, self.key_lengths
        return with_tensors(
            self,
            {
                "query": self.query[one],
                "key": self.key[one],
                "value": self.value[one],
                "alpha": self.alpha[one]
                if self.alpha.dim() == 4 and len(self.alpha) > 1
                else self.alpha,
                "mask": mask[one] if mask is not None and len(mask) > 1 else mask,
                "key_lengths": None if lengths is None else lengths[one],
                **NO_CODES,
            },
        )


#: Fields of an ``AttentionProblem`` whose keys are not those that were coded.
NO_CODES: dict[str, None] = {"codes": None, "code_bounds": None}


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionGradients:
    """Gradients with respect to the fields of the same name; None where not asked for.

    ``alpha``, ``slopes`` and ``sinks`` are in float64, ``mask`` in the dtype of the query or wider.
    """

    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    alpha: Tensor | None = None
    mask: Tensor | None = None
    slopes: Tensor | None = None
    sinks: Tensor | None = None


@traceable
@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """The nonzero weights of all rows ``(b h q, k)`` as a CSR matrix.

    Args:
        crow: ``(rows + 1,)`` in int64: offset of each row, and the end.
        col: ``(n,)`` in int64: key of each entry, ascending within a row.
        value: ``(n,)``: weight of each entry.
    """

    crow: Tensor
    col: Tensor
    value: Tensor


@traceable
@dataclass(frozen=True, kw_only=True, eq=False)
class LossProblem:
    """The Fenchel-Young losses of some rows.

    The target mass of class k in a row is ``weight_k ((1 - label_smoothing) q_k +
    label_smoothing / n)``, q being the given distribution or 1 at the index. Rows at
    ``ignore_index`` have no mass.

    Args:
        scores: ``(rows, n)``; kernels get it contiguous.
        alpha: One value or one per row; kernels get it in float64, of rank 0 or ``(rows,)``.
        index: ``(rows,)`` in int64, or None if ``probability`` is given.
        probability: ``(rows, n)``; kernels get it in the dtype of the scores.
        weight: ``(n,)``, or None for ones; kernels get it in the dtype of the scores.
        ignore_index: Index of ignored rows.
        label_smoothing: Fraction of the mass spread evenly over the classes.
    """

    scores: Tensor
    alpha: Tensor
    index: Tensor | None = None
    probability: Tensor | None = None
    weight: Tensor | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0

    def valid(self) -> Tensor | None:
        """Return whether each row counts, ``(rows,)``; None if all do."""
        return None if self.index is None else self.index != self.ignore_index

    def mass(self, like: Tensor) -> Tensor:
        """Return the target mass of each class in each row, in the shape and dtype of ``like``."""
        n = like.shape[-1]
        valid = self.valid()
        if self.probability is not None:
            mass = self.probability.to(like.dtype)
        else:
            assert self.index is not None and valid is not None
            mass = torch.zeros_like(like).scatter(
                -1, torch.where(valid, self.index, 0).unsqueeze(-1), 1.0
            )
        mass = (1 - self.label_smoothing) * mass + self.label_smoothing / n
        if self.weight is not None:
            mass = mass * self.weight.to(like.dtype)
        return mass if valid is None else torch.where(valid.unsqueeze(-1), mass, 0.0)


@cache
def tensor_names(record: Any) -> tuple[str, ...]:
    """Return the names of the fields that are annotated to hold a tensor, in order."""
    hints = get_type_hints(record)
    return tuple(
        name
        for name in field_names(record)
        if hints[name] is Tensor or Tensor in get_args(hints[name])
    )


def tensors_of(record: object, names: tuple[str, ...]) -> list[Tensor | None]:
    """Return the fields ``names`` of a dataclass, which are those of ``tensor_names``."""
    return [getattr(record, name) for name in names]


def numbers_of(x: Tensor) -> list[Any]:
    """``x.tolist()``, which torch 2.6 lacks inside of torch.func."""
    if torch._C._are_functorch_transforms_active():
        return [y.item() if y.dim() == 0 else numbers_of(y) for y in x.unbind()]
    numbers: list[Any] = x.tolist()
    return numbers


def build(record: type[Record], values: Mapping[str, Any]) -> Record:
    """Return a dataclass from the values of all its fields."""
    if torch.compiler.is_compiling():
        return record(**values)
    # The __init__ of a frozen dataclass takes several times as long.
    made = object.__new__(record)
    vars(made).update(values)
    return made


def from_tensors(record: type[Record], tensors: Iterable[Tensor | None]) -> Record:
    """Return a dataclass of tensors alone, such as what a backend saves, from its fields."""
    return build(record, dict(zip(field_names(cast(Any, record)), tensors, strict=True)))


def values_of(record: object) -> dict[str, Any]:
    """Return the values of all fields of a dataclass by name."""
    if torch.compiler.is_dynamo_compiling():
        return {name: getattr(record, name) for name in _TRACED[type(record)]}
    return vars(record)


def with_tensors(record: Record, tensors: Mapping[str, Any]) -> Record:
    """Return a copy of a dataclass in which the named fields are replaced."""
    return build(type(record), {**values_of(record), **tensors})


#: A size may vary from call to call of a compiled function.
_SCHEMA_TYPES = {Tensor: "Tensor", float: "float", int: "SymInt", bool: "bool", str: "str"}


def schema_of(record: type) -> str:
    """Return the fields of a dataclass as the arguments of an operator schema."""
    hints = get_type_hints(record)

    def type_of(name: str) -> str:
        hint = hints[name]
        if hint in _SCHEMA_TYPES:
            return _SCHEMA_TYPES[hint]
        (inner,) = (x for x in get_args(hint) if x is not type(None))
        return f"{_SCHEMA_TYPES[inner]}?"

    return ", ".join(f"{type_of(name)} {name}" for name in field_names(record))
