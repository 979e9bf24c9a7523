"""Loading of the compiled extension, its instruction sets, and access to tensors by address.

``ADASPARSE_ISA`` in the environment picks an instruction set by name at import, and
``ADASPARSE_SCREENING`` whether attention screens its scores in int8: ``auto``, ``off`` or
``forced``.
"""

import functools
import importlib.metadata
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from adasparse.kernels import _native

    extension = _native
    #: Why the compiled kernels are missing, or an empty string.
    missing_reason: str
else:
    missing_reason = ""
    try:
        from adasparse.kernels import _native as extension
    except ImportError as error:
        extension = None
        missing_reason = str(error)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _reason_of_installation() -> str:
    """Return why the package was installed without kernels, if CMake left a note."""
    try:
        files = importlib.metadata.files("adasparse") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    notes = [file for file in files if file.name == "no_kernels.txt"]
    return notes[0].read_text().strip() if notes else ""


if extension is None:
    missing_reason = _reason_of_installation() or missing_reason
else:
    if _wanted_isa := os.environ.get("ADASPARSE_ISA"):
        extension.use_isa(_wanted_isa)
    if _wanted_screening := os.environ.get("ADASPARSE_SCREENING"):
        extension.use_screening(_wanted_screening)


def is_available() -> bool:
    """Whether the compiled kernels are installed."""
    return extension is not None


def check_available() -> None:
    """Raise if the compiled kernels are missing."""
    if extension is None:
        raise RuntimeError(f"the compiled kernels are not installed: {missing_reason}")


def available_isas() -> list[str]:
    """Instruction sets that are compiled in and run here, best first."""
    return extension.available_isas() if is_available() else []


def isa() -> str:
    """Return the instruction set in use."""
    return extension.isa() if is_available() else ""


def use_isa(name: str) -> None:
    """Switch to the instruction set ``name``, one of ``available_isas()``."""
    check_available()
    extension.use_isa(name)


def has_int8_products() -> bool:
    """Whether this processor multiplies int8 fast enough to screen scores with (VNNI)."""
    return is_available() and extension.has_code_products()


def screening() -> str:
    """Return whether attention screens its scores in int8: ``auto``, ``off`` or ``forced``."""
    return extension.screening() if is_available() else ""


def use_screening(name: str) -> None:
    """Screen scores in int8 where that pays (``auto``), never (``off``) or always (``forced``).

    Results are the same to the last bit; tests and benchmarks switch.
    """
    check_available()
    extension.use_screening(name)


def has_openmp() -> bool:
    """Whether the kernels share PyTorch's OpenMP threads."""
    return extension.has_openmp if is_available() else False


def address(x: Tensor | None, dtype: torch.dtype | None = None) -> int:
    """Return where a contiguous tensor lies in memory, 0 for None.

    Args:
        x: The tensor.
        dtype: The only dtype to accept, or None for any.
    """
    if x is None:
        return 0
    if not x.is_contiguous() or (dtype is not None and x.dtype != dtype):
        raise ValueError(
            f"kernels take contiguous tensors of {dtype or 'any dtype'}; "
            f"got {x.dtype} with strides {x.stride()} and shape {tuple(x.shape)}."
        )
    return x.data_ptr()


def in_large_pages(x: Tensor) -> Tensor:
    """Return ``x``, which is about to be written, in large pages of memory if it is large."""
    if x.nbytes >= extension.LARGE_RESULT:
        extension.use_large_pages(
            data=x.data_ptr(), bytes=x.nbytes, threads=torch.get_num_threads()
        )
    return x


def raises_memory_error(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function raise MemoryError where PyTorch's allocator raises RuntimeError."""

    @functools.wraps(function)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
            raise MemoryError(str(error)) from error

    return wrapped
