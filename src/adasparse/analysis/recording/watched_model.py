"""A copy of a model whose attention calls are observed."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from adasparse.analysis.recording.storage import ModelHeader
from adasparse.integrations.calls import AttentionCall, probing
from adasparse.integrations.huggingface import SparsityConfig, sparsify
from adasparse.integrations.huggingface.attention import LEFT_DENSE
from adasparse.integrations.huggingface.dummies import dummy_inputs
from adasparse.integrations.huggingface.models import SparseModelMixin
from adasparse.integrations.huggingface.probe import find_attention, run
from adasparse.longcontext.layers import LongContextAttention
from adasparse.longcontext.model import LongContextPreTrainedModel


class WatchedModel:
    """A copy of a model, with the same parameters, of which every call of attention is seen.

    Softmax models get attention of alpha 1, which is the same; the given model is not changed.

    Args:
        model: A model of transformers, sparse or not, or a long-context model.
    """

    kind_of: dict[nn.Module, str]

    def __init__(self, model: PreTrainedModel) -> None:
        if not isinstance(model, PreTrainedModel):
            raise TypeError(
                f"Attention is recorded of models of transformers; got {type(model).__name__}."
            )
        self.model = _copy(model).eval()
        self.attention = _attention(model)
        if isinstance(model, LongContextPreTrainedModel):
            modules = [x for x in self.model.modules() if isinstance(x, LongContextAttention)]
            self.kind_of = dict.fromkeys(modules, "decoder")
            return
        if not isinstance(model, SparseModelMixin):
            sparsify(self.model, SparsityConfig(alpha="fixed", init_alpha=1.0))
        for module in self.model.modules():
            module.__dict__.pop(LEFT_DENSE, None)  # these would attend unseen
        found, _ = find_attention(self.model, dummy_inputs(self.model))
        self.kind_of = {
            self.model.get_submodule(name): attention.attention for name, attention in found.items()
        }

    def header(self, name: str) -> ModelHeader:
        """Run the model on a few tokens; return what it consists of."""
        names = {module: name for name, module in self.model.named_modules()}
        modules: dict[str, list[str]] = {}
        alpha: dict[str, list[tuple[float, ...]]] = {}

        def see(kind: str, call: AttentionCall) -> None:
            modules.setdefault(kind, []).append(names[call.module])
            alpha.setdefault(kind, []).append(_exponents(call))

        with self.watched(see):
            run(self.model, dummy_inputs(self.model))
        is_translation = bool(self.model.config.is_encoder_decoder)
        return ModelHeader(
            name=name,
            kind="translation" if is_translation else next(iter(modules)),
            modules={kind: tuple(names) for kind, names in modules.items()},
            alpha={kind: tuple(layers) for kind, layers in alpha.items()},
            attention=self.attention,
        )

    @contextmanager
    def watched(self, see: Callable[[str, AttentionCall], None]) -> Iterator[None]:
        """Have ``see`` called with the kind and every call of attention meanwhile."""

        def pass_on(call: AttentionCall) -> None:
            kind = self.kind_of.get(call.module)
            if kind is not None:
                see(kind, call)

        with torch.no_grad(), probing(pass_on):
            yield


def _copy(model: PreTrainedModel) -> PreTrainedModel:
    """Copy the modules and their settings, but share parameters and buffers."""
    shared = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def _attention(model: PreTrainedModel) -> str:
    if isinstance(model, LongContextPreTrainedModel):
        return str(model.config.attention)
    if not isinstance(model, SparseModelMixin):
        return "softmax"
    mode = str(model.config.adasparse["sparsity"]["alpha"])
    return {"fixed": "entmax", "learned": "adaptive"}.get(mode, mode)


def _exponents(call: AttentionCall) -> tuple[float, ...]:
    alpha = torch.as_tensor(call.alpha).detach().double().reshape(-1)
    return tuple(alpha.expand(call.query.shape[1]).tolist())
