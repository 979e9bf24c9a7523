"""Which modules of a model call the attention interface, found by running it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adasparse.integrations.huggingface.attention import AttentionCall, probing
from adasparse.integrations.huggingface.config import AttentionType

#: Lengths that differ, so that attention to another sequence shows.
_SOURCE_LENGTH, _TARGET_LENGTH = 7, 4
#: How far outputs may differ, relative to the largest number, and be taken for equal.
_ROUNDING = {torch.bfloat16: 0.1, torch.float16: 0.03}


@dataclass(frozen=True, kw_only=True)
class Found:
    """An attention module as it was seen to work.

    Args:
        name: Where it is in the model.
        num_heads: ``h``.
        embed_dim: Size of its input, 0 if that is not known.
        attention: Of which kind it is.
        has_softcap: Whether it bounds its scores.
    """

    name: str
    num_heads: int
    embed_dim: int
    attention: AttentionType
    has_softcap: bool


def dummy_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return small inputs that fit the model, as far as its configuration tells.

    Raises:
        ValueError: For a model with a main input that is not known here.
    """
    config, name = model.config, model.main_input_name
    device, dtype = model.device, model.dtype

    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    def tokens(length: int) -> Tensor:
        # The first ids are often special; a vocabulary may have no others.
        count = getattr(config.get_text_config(), "vocab_size", None) or 10
        first = min(2, count - 1)
        ids = torch.arange(length, device=device).remainder(min(8, count - first)) + first
        return ids.unsqueeze(0)

    def image() -> Tensor:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        height, width = (size, size) if isinstance(size, int) else size
        return noise(1, getattr(vision, "num_channels", 3), height, width)

    inputs: dict[str, Tensor] = {}
    if name == "input_ids":
        inputs[name] = tokens(_SOURCE_LENGTH)
        if hasattr(config, "vision_config") and not model.can_generate():  # two towers, as CLIP
            inputs["pixel_values"] = image()
    elif name == "pixel_values":
        inputs[name] = image()
    elif name == "input_features" and hasattr(config, "max_source_positions"):
        inputs[name] = noise(1, config.num_mel_bins, 2 * config.max_source_positions)
    elif name == "input_values":
        inputs[name] = noise(1, 4000)
    else:
        raise ValueError(
            f"sparsify() runs the model once to see which modules attend; {type(model).__name__} "
            f"takes {name!r}, for which there is no dummy. Pass inputs={{{name!r}: ...}}."
        )
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens(_TARGET_LENGTH)
    return inputs


def _kind(name: str, module: nn.Module, call: AttentionCall) -> AttentionType:
    last = name.rpartition(".")[2] if not name.endswith(".self") else name
    if (
        re.search(r"cross|encdec|encoder_attn", last, re.IGNORECASE)
        or getattr(module, "is_cross_attention", False)
        or call.query.shape[2] != call.key.shape[2]
    ):
        return "context"
    return "decoder" if call.is_causal or getattr(module, "is_causal", False) else "encoder"


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Run without dropout, gradients, or a trace in the generators and the modes of modules."""
    modes = {module: module.training for module in model.modules()}
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> list[Tensor]:
    """Run the model once and return the tensors of its output that are numbers."""
    with _undisturbed(model):
        output = model(**inputs)
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [x for x in values if isinstance(x, Tensor) and x.is_floating_point()]


def is_same(actual: list[Tensor], expected: list[Tensor]) -> bool:
    """Tell whether two outputs agree, up to what rounding does to a deep model."""
    return len(actual) == len(expected) and all(
        x.shape == y.shape
        and (x - y).abs().max().item() <= _ROUNDING.get(y.dtype, 1e-3) * y.abs().max().item()
        for x, y in zip(actual, expected, strict=True)
        if y.numel() and y.isfinite().all()
    )


def find_attention(
    model: PreTrainedModel, inputs: Mapping[str, Any]
) -> tuple[dict[str, Found], list[Tensor]]:
    """Run the model at alpha 1.

    Returns:
        The modules that called the attention interface, by name, and the output.
    """
    names = {module: name for name, module in model.named_modules()}
    found: dict[str, Found] = {}
    sizes: dict[nn.Module, int] = {}

    def see_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = args[0] if args else kwargs.get("hidden_states")
        if isinstance(given, Tensor):
            sizes[module] = given.shape[-1]

    def see_call(call: AttentionCall) -> None:
        name = names[call.module]
        found.setdefault(
            name,
            Found(
                name=name,
                num_heads=call.query.shape[1],
                embed_dim=sizes.get(call.module, 0),
                attention=_kind(name, call.module, call),
                has_softcap=call.softcap is not None,
            ),
        )

    with ExitStack() as stack:
        for module in names:
            hook = module.register_forward_pre_hook(see_input, with_kwargs=True)
            stack.callback(hook.remove)
        stack.enter_context(probing(see_call))
        output = run(model, inputs)
    return found, output


def silent_attention(model: nn.Module, called: Mapping[str, Found]) -> list[str]:
    """Return modules that look like attention and took no part in any call."""
    looks = [name for name, module in model.named_modules() if "Attention" in type(module).__name__]

    def is_related(name: str, other: str) -> bool:
        return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")

    silent = [name for name in looks if not any(is_related(name, other) for other in called)]
    # Of a module and what it is made of, the inner one says enough.
    return [name for name in silent if not any(other.startswith(f"{name}.") for other in silent)]
