"""Cases of the decoding benchmark with a model: generation, and the keys of a trained one."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from adasparse.bench.decode_cases import PACKED, comparison
from adasparse.bench.results import Row, Settings
from adasparse.functional.attention_arguments import attention_problem, prepared
from adasparse.functional.packed_keys import PackedKeys
from adasparse.integrations.calls import AttentionCall, watching
from adasparse.kernels import cpu

if TYPE_CHECKING:
    from transformers import Cache

    from adasparse.longcontext.model import LongContextForCausalLM


def _missing(name: str) -> str | None:
    if importlib.util.find_spec("transformers") is None:
        return f"{name}: transformers is not installed"
    return None


@dataclass(frozen=True, kw_only=True)
class GenerationCase:
    """Tokens that long-context models generate, entmax with packed keys beside softmax.

    The models are not trained, and the keys and values of the context are standard normal: both
    models do the work of a token, whatever it says. Times are those of one token.

    Args:
        name: Name on the command line.
        title: Name in tables.
        num_layers, width, num_heads: Sizes of the models.
        context: Number of tokens before the first.
        num_tokens: Number of tokens to generate.
        bar: Smallest acceptable ratio of tokens per second.
    """

    name: str = "generation"
    title: str = "generation, 4 layers of width 256"
    num_layers: int = 4
    width: int = 256
    num_heads: int = 8
    context: int = 32768
    num_tokens: int = 64
    bar: float | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape ``(b, h, k, d)`` of the keys of a layer."""
        return 1, self.num_heads, self.context, self.width // self.num_heads

    def quick(self) -> "GenerationCase":
        """Take an eighth of the context and of the tokens."""
        context, num_tokens = max(1, self.context // 8), max(1, self.num_tokens // 8)
        return replace(self, context=context, num_tokens=num_tokens, bar=None)

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        return _missing(self.name)

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Time all tokens, starting from the same context each time."""
        from transformers import DynamicCache

        from adasparse.integrations.huggingface import PackedCache

        known, ours = (
            self._generation(kind, cache(config=self._config(kind)), settings)
            for kind, cache in (("softmax", DynamicCache), ("entmax", PackedCache))
        )
        yield {
            "alpha": 1.5,
            "keys": PACKED,
            "key_heads": self.num_heads,
            "bar": self.bar,
            **comparison(known, ours, settings, calls_of_each=self.num_tokens),
        }

    def _config(self, kind: Any) -> Any:
        from adasparse.longcontext.config import LongContextConfig

        return LongContextConfig(
            attention=kind,
            positions="rope",
            alpha=1.5,
            hidden_size=self.width,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
        )

    def _generation(self, kind: str, cache: "Cache", settings: Settings) -> Callable[[], object]:
        from adasparse.longcontext.model import LongContextForCausalLM

        torch.manual_seed(settings.seed)
        model = LongContextForCausalLM(self._config(kind)).eval().to(settings.device)
        for layer in range(self.num_layers):
            key, value = (torch.randn(self.shape).to(settings.device) for _ in range(2))
            cache.update(key, value, layer)

        @torch.no_grad()
        def generate() -> Tensor:
            token = torch.zeros(1, 1, dtype=torch.int64, device=settings.device)
            for _ in range(self.num_tokens):
                token = model(token, past_key_values=cache).logits.argmax(-1)
            cache.crop(-self.num_tokens)
            return token

        return generate


@dataclass(frozen=True, kw_only=True)
class TrainedCase:
    """The last query of an example against the keys of a trained model, all layers together.

    Args:
        name: Name on the command line.
        title: Name in tables.
        length: Length of the example, about.
    """

    name: str = "trained"
    title: str = "keys of a trained model"
    length: int = 8192

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The number of keys; the others are those of the model."""
        return 1, 0, self.length, 0

    def quick(self) -> "TrainedCase":
        """Take an eighth of the keys."""
        return replace(self, length=self.length // 8)

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""
        if settings.run is None:
            return f"{self.name}: needs a run of 'adasparse tasks train', see --run"
        return _missing(self.name)

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Time one query of all layers, and count the keys whose scores were computed."""
        assert settings.run is not None
        calls = self._last_queries(Path(settings.run), settings)
        packed = [PackedKeys(call.key) for call in calls]
        softmax = partial(functional.scaled_dot_product_attention, enable_gqa=True)

        @torch.no_grad()
        def known() -> None:
            for call in calls:
                softmax(call.query, call.key, call.value)

        @torch.no_grad()
        def ours() -> None:
            for call, keys in zip(calls, packed, strict=True):
                replace(call, key=keys).output()  # type: ignore[arg-type]

        first = calls[0]
        yield {
            "shape": [1, first.query.shape[1], first.key.shape[2], first.key.shape[3]],
            "alpha": "learned" if isinstance(first.alpha, Tensor) else first.alpha,
            "keys": PACKED,
            "key_heads": first.key.shape[1],
            "bar": None,
            "layers": len(calls),
            **_shares(calls, packed),
            **comparison(known, ours, settings),
        }

    def _last_queries(self, run: Path, settings: Settings) -> list[AttentionCall]:
        """Return the calls of all layers for the last token of an example."""
        from adasparse.longcontext.runs import load_task_run
        from adasparse.longcontext.tasks import find_task

        model, recipe = load_task_run(run)
        model.to(settings.device)  # type: ignore[arg-type]  # the types know no device names
        tokens = find_task(recipe.task).batch(settings.seed, 1, self.length).input_ids
        calls: list[AttentionCall] = []
        with torch.no_grad():
            past = _past(model, tokens[:, :-1].to(model.device))
            with watching(calls.append):
                model(tokens[:, -1:].to(model.device), past_key_values=past)
        return [replace(call, key=call.key.contiguous()) for call in calls]


def _past(model: "LongContextForCausalLM", tokens: Tensor) -> Any:
    return model(tokens, use_cache=True, logits_to_keep=1).past_key_values


def _shares(calls: list[AttentionCall], packed: list[PackedKeys]) -> Row:
    """Return the shares of keys whose scores were computed, and that have weight."""
    if not (cpu.is_available() and calls[0].query.is_cpu):
        return {}
    total = rescored = support = 0
    for call, keys in zip(calls, packed, strict=True):
        with torch.no_grad():
            problem, _ = attention_problem(call.query, keys, call.value, **call.options())
            rescored += int(cpu.attention_rescored(prepared(problem, torch.float32)).sum())
        support += len(call.support().col)
        total += call.query.shape[1] * call.key.shape[2]
    return {"rescored": rescored / total, "support": support / total}
