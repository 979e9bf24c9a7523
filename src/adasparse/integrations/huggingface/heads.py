"""Parameters of a sparse attention module: its exponents and, optionally, its length scale."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adasparse.functional.arguments import bound_of, with_bound
from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.nn import LearnedAlpha, LengthScale

#: Name of the child of an attention module that makes it sparse.
CHILD = "entmax"
#: Attribute of an attention module that holds its input, where the length scale reads it.
LAYER_INPUT = "_adasparse_input"


class _OwnHeads(torch.autograd.Function):
    """The share of the heads that this process has; its gradient is that of all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, mesh: Any) -> Tensor:
        ctx.dim, ctx.mesh, ctx.shape = dim, mesh, x.shape
        own: Tensor = x.chunk(mesh.size(), dim)[mesh.get_local_rank()]
        return own.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        whole = grad.new_zeros(ctx.shape)
        whole.chunk(ctx.mesh.size(), ctx.dim)[ctx.mesh.get_local_rank()].copy_(grad)
        torch.distributed.all_reduce(whole, group=ctx.mesh.get_group())
        return whole, None, None


class AnnealedAlpha(nn.Module):
    """One exponent for all heads that moves from ``start`` to ``end`` during training.

    Where it stands is kept in a buffer, and so in checkpoints.

    Example:
        >>> alpha = AnnealedAlpha(start=1.0, end=1.5, steps=100)
        >>> alpha.set_step(50)
        >>> alpha()
        tensor([1.2500])
    """

    alpha: Tensor

    def __init__(self, *, start: float, end: float, steps: int) -> None:
        super().__init__()
        self.start, self.end, self.steps = start, end, steps
        self.register_buffer("alpha", torch.empty(1, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Go back to the start."""
        self.set_step(0)

    def set_step(self, step: int) -> None:
        """Move to where alpha stands after ``step`` steps; past the last one it stays."""
        is_number = not isinstance(step, str) and hasattr(step, "__float__")
        if not is_number or not step >= 0:  # not NaN either
            raise ValueError(f"step must be a number from 0 on; got {step!r}.")
        share = min(float(step) / self.steps, 1.0)
        self.alpha.fill_(self.start + share * (self.end - self.start))

    def forward(self) -> Tensor:
        """Return alpha ``(1,)``."""
        return with_bound(self.alpha, max(self.start, self.end))

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"start={self.start}, end={self.end}, steps={self.steps}"


class SparseHeads(nn.Module):
    """The exponents of one attention module, as its child ``entmax``.

    Parameters and buffers stay in float32 when the model is cast to half precision, where steps of
    the size of a learning rate would be lost.

    Args:
        config: What to own.
        num_heads: ``h``.
        embed_dim: Size of the layer input, which the adaptive length scale reads.
    """

    #: Mesh of the processes that share the heads, where the model is tensor parallel.
    mesh: Any = None

    def __init__(self, config: SparsityConfig, *, num_heads: int, embed_dim: int | None) -> None:
        super().__init__()
        assert config.init_alpha is not None
        self.num_heads = num_heads
        self.heads = config.heads
        count = num_heads if config.heads is None else len(config.heads)
        self.fixed: float | None = None
        self.alpha: LearnedAlpha | AnnealedAlpha | None = None
        if config.alpha == "learned":
            self.alpha = LearnedAlpha(
                1 if config.tie_heads else count,
                init=config.init_alpha,
                low=config.low,
                high=config.high,
            )
        elif config.alpha == "annealed":
            self.alpha = AnnealedAlpha(
                start=config.init_alpha, end=config.final_alpha, steps=config.anneal_steps
            )
        else:
            self.fixed = float(config.init_alpha)
        self.length_scale: LengthScale | None = None
        if config.length_scale is not None:
            self.length_scale = LengthScale(
                num_heads,
                kind=config.length_scale,
                embed_dim=embed_dim if config.length_scale == "adaptive" else None,
                heads=config.heads,
                dtype=torch.float32,
            )

    def reset_parameters(self) -> None:
        """Start over."""
        for child in (self.alpha, self.length_scale):
            if child is not None:
                child.reset_parameters()

    def exponents(self) -> float | Tensor:
        """Return alpha: a number, or ``(h,)`` or ``(1,)`` with gradient where it is learned."""
        if self.heads is None:
            return self.fixed if self.alpha is None else self.alpha()  # type: ignore[return-value]
        device = next((x.device for x in (*self.parameters(), *self.buffers())), None)
        chosen = torch.tensor(self.heads, device=device)
        alpha = (
            torch.full((1,), self.fixed or 1.0, device=device)
            if self.alpha is None
            else self.alpha()
        )
        everywhere = alpha.new_ones(self.num_heads)
        found = everywhere.index_copy(0, chosen, alpha.expand(len(self.heads)))
        return with_bound(found, self.fixed if self.alpha is None else bound_of(alpha))

    def forward(
        self, query: Tensor, visible: Callable[[], Tensor], layer_input: Tensor | None = None
    ) -> tuple[Tensor, float | Tensor]:
        """Return ``query`` ``(b, h, q, d)``, scaled for its length if so configured, and alpha.

        Args:
            query: ``(b, h, q, d)``.
            visible: Counts the keys that each query sees, broadcastable to ``(b, h, q, 1)``.
            layer_input: ``(b, q, embed_dim)``; read by the adaptive length scale only.
        """
        alpha = self.exponents_for(query.shape[1], query.device)
        if self.length_scale is None:
            return query, alpha
        if self.length_scale.kind != "adaptive":
            scale = self.length_scale(visible())
        else:
            assert layer_input is not None
            with torch.autocast(query.device.type, enabled=False):
                dtype = self.length_scale.beta_weight.dtype
                scale = self.length_scale(visible(), layer_input.to(dtype))
        if query.shape[1] != self.num_heads:
            scale = _OwnHeads.apply(scale, 1, self.mesh)
        return (query * scale).to(query.dtype), alpha

    def exponents_for(self, num_heads: int, device: torch.device) -> float | Tensor:
        """Return alpha for the heads that this process has, where attention runs.

        Under tensor parallelism these are a share of all; the parameter is the same everywhere.
        """
        alpha = self.exponents()
        if isinstance(alpha, Tensor) and alpha.device != device:
            alpha = alpha.to(device)
        if num_heads == self.num_heads or not isinstance(alpha, Tensor):
            return alpha
        if self.mesh is None or num_heads * self.mesh.size() != self.num_heads:
            raise ValueError(
                f"alpha is for {self.num_heads} heads; got {num_heads}. Where heads are shared "
                "between processes, load a sparse checkpoint with tp_plan=..., and with as many "
                "processes as divide the heads."
            )
        shared: Tensor = _OwnHeads.apply(alpha.expand(self.num_heads), 0, self.mesh)
        return shared

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SparseHeads":
        """Move and cast as other modules do, except to half precision."""

        def moved(x: Tensor) -> Tensor:
            y = fn(x)
            return x.to(y.device) if y.dtype in (torch.float16, torch.bfloat16) else y

        super()._apply(moved, recurse)
        return self


def keep_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Hook before forward: leave the input of the layer where the length scale finds it."""
    setattr(module, LAYER_INPUT, args[0] if args else kwargs.get("hidden_states"))


def sparse_heads(model: nn.Module) -> dict[str, SparseHeads]:
    """Return what makes each sparse attention module so, by the name of that module.

    Example:
        >>> sparse_heads(nn.Linear(1, 1))
        {}
    """
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, SparseHeads):
            owner, _, rest = f".{name}".rpartition(f".{CHILD}")
            # PEFT keeps the original beside the copy it trains.
            if not rest.endswith("original_module"):
                found[owner.removeprefix(".")] = module
    return found
