"""Export of models to ONNX, and the decomposition of the registered operators that it uses."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from adasparse.functional.decompositions import decompositions

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

__all__ = ["decompositions", "to_onnx"]


def to_onnx(
    model: "nn.Module | torch.export.ExportedProgram",
    args: tuple[Any, ...] = (),
    path: str | Path | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> "ONNXProgram":
    """Export a model that attends through adasparse to ONNX.

    ``torch.onnx.export(model, ..., dynamo=True)`` does the same for a module; this function also
    takes a program that ``torch.export.export`` or ``torch.export.load`` returned, and exports a
    module in evaluation mode. Every option of attention is supported except dropout and packed
    sequences.

    Args:
        model: Module, or exported program.
        args: Example of the positional arguments; not for an exported program.
        path: File to write, or None.
        kwargs: Example of the keyword arguments.
        dynamic_shapes: Dimensions that may vary, as ``torch.export.export`` takes them; in the
            example each should have a size of at least 2. The exporter of torch 2.6 fixes lengths
            all the same.
        options: Other arguments of ``torch.onnx.export``, such as ``input_names``.

    Returns:
        The program of ``torch.onnx.export``.

    Example:
        >>> from adasparse.nn import Entmax
        >>> program = to_onnx(Entmax(alpha=2.0), (torch.randn(2, 5),))  # doctest: +SKIP
        >>> program.save("entmax.onnx")  # doctest: +SKIP
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"ONNX export requires {' and '.join(missing)}: pip install 'adasparse[onnx]'."
        )
    if not isinstance(model, torch.export.ExportedProgram):
        model = _exported(model, args, kwargs=kwargs, dynamic_shapes=dynamic_shapes)
    elif args or kwargs or dynamic_shapes:
        raise ValueError(
            "args, kwargs and dynamic_shapes are part of an exported program; got them besides."
        )
    options = {"verbose": False, **options, "dynamo": True}
    with torch.no_grad():  # for the forms of PyTorch's own operators, too
        model = model.run_decompositions(decompositions())
        program = torch.onnx.export(model, (), path, **options)
    assert program is not None
    return program


def _exported(
    model: nn.Module, args: tuple[Any, ...], **options: Any
) -> torch.export.ExportedProgram:
    """Export in evaluation mode, and restore the mode of every module afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return torch.export.export(model, args, strict=False, **options)
    finally:
        for module, mode in modes.items():
            module.training = mode
