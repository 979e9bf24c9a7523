"""Small long-context models whose attention is far from uniform."""

from typing import get_args

import torch

from adasparse.longcontext import LongContextConfig, LongContextForCausalLM
from adasparse.longcontext.config import AttentionKind, PositionKind
from adasparse.nn import LearnedAlpha, LengthScale
from support.helpers import randn

ATTENTIONS = get_args(AttentionKind)
POSITIONS = get_args(PositionKind)
#: Most that float32 may differ from the oracle.
BAR = 2e-5


def config(attention: str = "asentmax", positions: str = "nape", **changes) -> LongContextConfig:
    sizes = {
        "vocab_size": 13,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return LongContextConfig(**{**sizes, "attention": attention, "positions": positions, **changes})


def model(attention: str = "asentmax", positions: str = "nape", **changes):
    """A model with random parameters of the size that training leads to."""
    made = LongContextForCausalLM(config(attention, positions, **changes)).eval()
    with torch.no_grad():
        for seed, (name, x) in enumerate(made.named_parameters()):
            noise = randn(tuple(x.shape), seed=seed)
            if "alpha" in name or "length_scale" in name:
                x.add_(0.3 * noise)
            elif x.dim() == 2:
                x.copy_(noise * x.shape[1] ** -0.5)
            else:
                x.copy_(1 + 0.1 * noise)
    return made


def tokens(b: int, n: int, *, seed: int = 0, vocab_size: int = 13) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size, (b, n), generator=generator)


def padding(lengths: list[int], width: int, side: str) -> torch.Tensor:
    """A mask ``(b, width)``: 1 for as many tokens as each row has."""
    place = torch.arange(width)
    rows = [place < n if side == "right" else place >= width - n for n in lengths]
    return torch.stack(rows).long()


def extra_parameters(made) -> dict[str, torch.Tensor]:
    """Parameters of exponents and length scales, by name."""
    return {
        f"{name}.{key}": x
        for name, module in made.named_modules()
        if isinstance(module, (LearnedAlpha, LengthScale))
        for key, x in module.named_parameters()
    }
