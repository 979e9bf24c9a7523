"""The registered operators in terms of PyTorch's own, for exporters to other runtimes."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from adasparse.functional.attention_operators import attention_decomposition
from adasparse.functional.entmax import entmax_decomposition

#: Operators that other runtimes have no use for, and the way out.
_REFUSED = {
    "entmax_backward": "gradients; export the model under torch.no_grad()",
    "entmax_attention_backward": "gradients; export the model under torch.no_grad()",
    "entmax_attention_support": "sparse weights; use entmax_attention_weights",
    "entmax_loss": "entmax_loss; export the model without its loss",
    "entmax_loss_backward": "gradients; export the model under torch.no_grad()",
}


def _refusal(reason: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(f"The exported graph cannot hold {reason}.")

    return refuse


def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Return a decomposition of each registered operator into PyTorch's own.

    Attention becomes a matrix of scores, ``entmax`` and a product. ``entmax`` becomes softmax for
    an alpha of 1, sorting for 1.5 and 2, a fixed number of Newton steps for other numbers up to 2
    and for tensors that are known to stay there, and of bisection for every other alpha.

    Returns:
        A table for ``torch.export.ExportedProgram.run_decompositions``. What has no meaning outside
        of PyTorch (gradients, losses, sparse weights, dropout) raises ``NotImplementedError``.

    Example:
        >>> scores = torch.tensor([[1.0, 0.5, -1.0]])
        >>> program = torch.export.export(torch.nn.Softmax(-1), (scores,))
        >>> program = program.run_decompositions(decompositions())
    """
    table: dict[str, Callable[..., Any]] = {
        "entmax": entmax_decomposition,
        "entmax_attention": attention_decomposition,
        **{name: _refusal(reason) for name, reason in _REFUSED.items()},
    }
    return {getattr(torch.ops.adasparse, name).default: form for name, form in table.items()}
