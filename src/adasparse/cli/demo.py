"""``adasparse demo``: one row of scores under several maps, and attention, in a few seconds."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

TOKENS = ("the", "old", "dog", "chased", "a", "small", "red", "ball")
SCORES = (-0.4, 0.9, 2.6, 1.9, -0.7, 0.2, 0.6, 2.2)
#: What the learned alpha aims at: five of the tokens, the others exactly zero.
TARGET = (0.0, 0.02, 0.49, 0.19, 0.0, 0.0, 0.01, 0.29)
TIMED_SHAPE = (4096, 1024)
#: Sequences, heads, tokens and head size of the attention that is timed.
ATTENTION_SHAPE = (1, 8, 2048, 64)


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show softmax, entmax, sparsemax and a learned alpha on one row of scores, and attention."""
    training = train_alpha()
    result = {
        "tokens": TOKENS,
        "scores": SCORES,
        "target": TARGET,
        "maps": {
            "softmax": evaluate(1.0),
            "1.5-entmax": evaluate(1.5),
            "sparsemax": evaluate(2.0),
            "learned α": evaluate(training[-1]["alpha"]),
        },
        "training": training,
        "timing": time_entmax(),
        "attention": time_attention(),
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _show(result)


def evaluate(alpha: float) -> dict[str, Any]:
    """Weights at ``alpha``, the squared distance to the target, and its gradients."""
    import torch

    import adasparse

    scores = torch.tensor(SCORES, requires_grad=True)
    learned = torch.tensor(alpha, requires_grad=True)
    weights = adasparse.entmax(scores, learned)
    loss = (weights - torch.tensor(TARGET)).square().sum()
    by_scores, by_alpha = torch.autograd.grad(loss, (scores, learned))
    return {
        "alpha": alpha,
        "weights": weights.tolist(),
        "loss": loss.item(),
        "grad_scores": by_scores.tolist(),
        "grad_alpha": by_alpha.item(),
    }


def train_alpha(*, start: float = 1.0, steps: int = 40) -> list[dict[str, float]]:
    """Let gradient descent move alpha alone towards the target; return every step."""
    import torch

    import adasparse

    scores, target = torch.tensor(SCORES), torch.tensor(TARGET)
    alpha = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.SGD([alpha], lr=0.5)
    history = []
    for step in range(steps + 1):
        optimizer.zero_grad()
        loss = (adasparse.entmax(scores, alpha) - target).square().sum()
        loss.backward()
        assert alpha.grad is not None
        history.append(
            {"step": step, "alpha": alpha.item(), "loss": loss.item(), "grad": alpha.grad.item()}
        )
        optimizer.step()
    return history


def time_entmax() -> dict[str, Any]:
    """Milliseconds of one forward call on standard normal scores, next to softmax."""
    import torch

    import adasparse
    from adasparse.cli.timing import best_times

    scores = torch.randn(TIMED_SHAPE, generator=torch.Generator().manual_seed(0))
    functions = {
        "softmax": lambda: torch.softmax(scores, -1),
        "1.5-entmax": lambda: adasparse.entmax(scores, 1.5),
        "sparsemax": lambda: adasparse.entmax(scores, 2.0),
    }
    times = best_times(functions, repeats=20)
    return {
        "shape": TIMED_SHAPE,
        "threads": torch.get_num_threads(),
        "ms": {name: 1000 * seconds for name, seconds in times.items()},
    }


def time_attention() -> dict[str, Any]:
    """Milliseconds of attention with gradients, dense and sparse, and the share of zero weights."""
    import torch

    import adasparse
    from adasparse.cli.timing import best_times

    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = (
        torch.randn(ATTENTION_SHAPE, generator=generator).requires_grad_() for _ in range(4)
    )
    known = torch.nn.functional.scaled_dot_product_attention
    functions = {
        name: lambda attend=attend: torch.autograd.grad(
            attend(query, key, value), (query, key, value), grad
        )
        for name, attend in (("softmax", known), ("1.5-entmax", adasparse.entmax_attention))
    }
    times = best_times(functions, repeats=3)
    weights = adasparse.entmax_attention_weights(query, key, layout="sparse")
    possible = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    return {
        "shape": ATTENTION_SHAPE,
        "threads": torch.get_num_threads(),
        "ms": {name: 1000 * seconds for name, seconds in times.items()},
        "zeros": 1 - len(weights.value) / possible,
    }


def _show(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    maps = result["maps"]
    weights = _table("Weights; blank is exactly zero", "α", "nonzero")
    weights.add_row("scores", *(f"{score:.1f}" for score in result["scores"]))
    for name, row in maps.items():
        cells = [_shaded(weight) for weight in row["weights"]]
        support = sum(weight > 0 for weight in row["weights"])
        weights.add_row(name, *cells, f"{row['alpha']:.3f}", f"{support}/{len(cells)}")
    weights.add_row("target", *(_shaded(weight) for weight in result["target"]))
    console.print(weights, "")

    gradients = _table("Gradients of the squared distance to the target", "by α", "loss")
    for name, row in maps.items():
        signed = [f"{grad:+.2f}" if grad else "" for grad in row["grad_scores"]]
        gradients.add_row(name, *signed, f"{row['grad_alpha']:+.3f}", f"{row['loss']:.4f}")
    console.print(gradients, "")

    console.print("[italic]Learning α by gradient descent, the scores fixed[/]")
    for entry in result["training"][::8]:
        console.print(
            f"step {entry['step']:2}   α {entry['alpha']:.3f}   loss {entry['loss']:.5f}   "
            f"gradient {entry['grad']:+.5f}"
        )
    for title, timing in (
        ("Forward, {} scores", result["timing"]),
        ("Attention {}, forward and backward", result["attention"]),
    ):
        size, ms = "×".join(map(str, timing["shape"])), timing["ms"]
        console.print(f"\n[italic]{title.format(size)}, {timing['threads']} threads[/]")
        for name, time in ms.items():
            console.print(f"{name:10} {time:6.2f} ms   {ms['softmax'] / time:.2f}× softmax's speed")
    console.print(
        f"{result['attention']['zeros']:.1%} of these attention weights are exactly zero."
    )


def _table(title: str, *last: str) -> Table:
    """A table of one row per map and one column per token, 80 characters wide at most."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("", min_width=10)
    for name in (*TOKENS, *last):
        table.add_column(name, justify="right", min_width=5)
    return table


def _shaded(weight: float) -> Text:
    """Return a weight on a background the stronger the larger it is; nothing for zero."""
    if weight == 0:
        return Text("")
    strength = min(1.0, weight / 0.5)
    red, green, blue = (round(40 + strength * (full - 40)) for full in (20, 150, 120))
    return Text(f"{weight:.3f}", style=f"white on rgb({red},{green},{blue})")
