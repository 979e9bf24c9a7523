"""Continuous batching of sparse models: ``generate_batch`` and its parts.

While a manager of transformers runs, the configurations of the model name an implementation that
it supports, and those of the sparse modules, which get copies, still name ours. Masks and the paged
cache are then what the manager makes for SDPA; our attention function takes both.
"""

import copy
from typing import Any

from torch import nn

from adasparse.integrations.huggingface.attention import EXPLICIT_NAME, NAME
from adasparse.integrations.huggingface.heads import CHILD
from adasparse.integrations.huggingface.implementations import Before, holders, undo

#: Implementation for which the manager makes masks of a form that ours takes, too.
_MANAGED = "sdpa"
#: Attribute of a model that a manager runs.
_BEFORE = "_adasparse_before_paging"


class ContinuousBatchingMixin:
    """Continuous batching of the sparse counterpart of a model class."""

    config: Any

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Return the manager that ``generate_batch`` uses; stopping it ends what it changed."""
        own_code = self.config.adasparse.get("through_softmax", ())
        if own_code:
            raise ValueError(
                f"{type(self).__name__} attends by code of its own, which has no paged cache for "
                "continuous batching. Call generate() with a padded batch."
            )
        _start_paging(self)  # type: ignore[arg-type]
        try:
            manager = super().init_continuous_batching(*args, **kwargs)  # type: ignore[misc]
        except BaseException:
            stop_paging(self)  # type: ignore[arg-type]
            raise
        # The manager has the model set back to this when it stops.
        manager._original_attn_impl = self.config.adasparse["sparse_implementation"]
        return manager


def _start_paging(model: nn.Module) -> None:
    if _BEFORE in vars(model):
        return
    before = Before()
    copies: dict[int, Any] = {}
    configs: dict[int, Any] = {}
    for _, module, attribute, config in holders(model):
        if config._attn_implementation in (NAME, EXPLICIT_NAME):
            configs[id(config)] = config
            if CHILD in module._modules:
                before.split.append((module, attribute, config))
                setattr(module, attribute, copies.setdefault(id(config), copy.copy(config)))
    for config in configs.values():
        before.switched.append((config, config._attn_implementation))
        config._attn_implementation_internal = _MANAGED
    object.__setattr__(model, _BEFORE, before)


def stop_paging(model: nn.Module) -> None:
    """Undo what a manager of continuous batching needed, if one ran."""
    before = vars(model).pop(_BEFORE, None)
    if before is not None:
        undo(before)
