"""The float64 oracle: the equations of long-context models on one sequence, every matrix in full.

It shares nothing with the models but their parameters: sequences come without padding and without
a cache, and the reference entmax does what the kernels do.
"""

import math

import torch
from torch import Tensor

from adasparse.longcontext import LongContextForCausalLM
from support.helpers import oracle


def reference_logits(
    model: LongContextForCausalLM, tokens: Tensor, is_token: Tensor | None = None
) -> Tensor:
    """Logits ``(b, n, v)`` of each row by itself, NaN at padding."""
    is_token = torch.ones_like(tokens) if is_token is None else is_token
    logits = torch.full((*tokens.shape, model.config.vocab_size), math.nan, dtype=torch.float64)
    for row, kept, found in zip(tokens, is_token.bool(), logits, strict=True):
        found[kept] = _one_sequence(model, row[kept])
    return logits


def _one_sequence(model: LongContextForCausalLM, tokens: Tensor) -> Tensor:
    p = {name: x.detach().double() for name, x in model.state_dict().items()}
    config = model.config
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(config.num_hidden_layers):
        layer = {
            name.removeprefix(f"model.layers.{i}."): value
            for name, value in p.items()
            if name.startswith(f"model.layers.{i}.")
        }
        x = x + _attention(config, layer, _norm(x, layer["input_layernorm.weight"]))
        y = _norm(x, layer["post_attention_layernorm.weight"])
        gate, up = y @ layer["mlp.gate_proj.weight"].T, y @ layer["mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ layer["mlp.down_proj.weight"].T
    return _norm(x, p["model.norm.weight"]) @ p["lm_head.weight"].T


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _attention(config, layer: dict[str, Tensor], x: Tensor) -> Tensor:
    n, h = len(x), config.num_attention_heads
    d = config.head_dim
    shared = h // config.num_key_value_heads
    scores, values = [], []
    for head in range(h):
        rows = slice(head * d, head * d + d)
        group = slice(head // shared * d, head // shared * d + d)
        query = x @ layer["self_attn.q_proj.weight"][rows].T
        key = x @ layer["self_attn.k_proj.weight"][group].T
        value = x @ layer["self_attn.v_proj.weight"][group].T
        if config.positions == "rope":
            query, key = _rotated(query, config.rope_theta), _rotated(key, config.rope_theta)
        scale = [_scale(config, layer, head, x[i], i) for i in range(n)]
        place = torch.arange(n)
        products = torch.tensor(scale, dtype=torch.float64)[:, None] * (query @ key.T)
        bias = _slope(config, head) * (place - place[:, None])
        bias = bias.double().masked_fill(place > place[:, None], -math.inf)
        scores.append(products / math.sqrt(d) + bias)
        values.append(value)
    outputs = _weights(config, layer, torch.stack(scores)) @ torch.stack(values)
    return outputs.transpose(0, 1).flatten(1) @ layer["self_attn.o_proj.weight"].T


def _rotated(x: Tensor, theta: float) -> Tensor:
    """Multiply pairs, as complex numbers, with ``exp(1j * position * frequency)``."""
    n, d = x.shape
    pairs = torch.complex(x[:, : d // 2], x[:, d // 2 :])
    frequency = torch.tensor([theta ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * frequency
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def _slope(config, head: int) -> float:
    h = config.num_attention_heads
    if config.positions == "alibi":
        return 2 ** (-8 * (head + 1) / h)  # h is a power of two
    if config.positions == "nape" and head < h // 2:
        return 1 / (head + 1)
    return 0.0


def _scale(config, layer: dict[str, Tensor], head: int, x: Tensor, i: int) -> float:
    first = config.num_attention_heads // 2 if config.positions == "nape" else 0
    if head < first:
        return 1.0
    row = head - first
    if config.attention == "ssmax":
        return layer["self_attn.length_scale.factor"][row].item() * math.log(i + 2)
    if not config.attention.startswith("asentmax"):
        return 1.0
    numbers = {}
    for name in ("beta", "gamma"):
        weight = layer[f"self_attn.length_scale.{name}_weight"][row]
        numbers[name] = (weight @ x + layer[f"self_attn.length_scale.{name}_bias"][row]).item()
    beta, gamma = math.log1p(math.exp(numbers["beta"])), 2 * math.tanh(numbers["gamma"])
    return 1 + beta * math.log(i + 2) ** gamma


def _weights(config, layer: dict[str, Tensor], scores: Tensor) -> Tensor:
    """Weights of scores ``(h, n, n)``."""
    if config.attention == "adaptive-temperature":
        for row, plain in zip(scores.flatten(0, 1), scores.softmax(-1).flatten(0, 1), strict=True):
            h = -sum(p * math.log(p) for p in plain.tolist() if p > 0)
            beta = -0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791
            row *= beta if h > 0.5 and beta > 1 else 1.0
    if config.attention in ("softmax", "ssmax", "adaptive-temperature"):
        return scores.softmax(-1)
    alpha = torch.full((len(scores),), config.alpha, dtype=torch.float64)
    if config.attention.endswith("adaptive"):
        alpha = 1 + 1 / (1 + torch.exp(-layer["self_attn.alpha.alpha_logit"]))
    return oracle(scores, alpha.repeat_interleave(scores.shape[1]))
