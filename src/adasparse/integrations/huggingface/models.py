"""Sparse counterparts of the classes of transformers, made when they are needed.

The sparse counterpart of a class has the same name, lives in this module and is a subclass of it.
Nothing that goes by the name of a class or by ``config.model_type`` notices a difference, as many
places in transformers and PEFT do. Files do: see ``MODEL_TYPE``.
"""

import copy
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar

import transformers
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from adasparse.integrations.huggingface.attention import LEFT_DENSE, NAME
from adasparse.integrations.huggingface.config import SparsityConfig
from adasparse.integrations.huggingface.heads import CHILD, SparseHeads, keep_input
from adasparse.integrations.huggingface.implementations import (
    Plan,
    has_plan,
    leave_others_dense,
    loadable,
    recorded,
    submodule,
    undo_plan,
)
from adasparse.integrations.huggingface.internals import let_record
from adasparse.integrations.huggingface.paged import ContinuousBatchingMixin, stop_paging
from adasparse.integrations.huggingface.search import Result
from adasparse.integrations.huggingface.softmax import (
    reduced_by,
    route_through_softmax,
    unroute,
)

#: Implementation in the files of models that attend through their softmax. Nothing registers it, so
#: that a dense class, which would run as softmax, cannot load them.
SOFTMAX_NAME = "adasparse-softmax"

#: ``model_type`` in files. Where adasparse is not imported transformers quotes it in its error, so
#: it says what to do. Checkpoints carry it: it must never change.
MODEL_TYPE = "adasparse (pip install adasparse[hf]; import adasparse.integrations.huggingface)"


class SparseConfigMixin:
    """Additions of the sparse counterpart of a configuration class.

    ``adasparse`` is a dictionary with all that building the model takes: ``sparsity`` (a
    ``SparsityConfig``), ``modules`` (sizes by name), ``through_softmax`` (names of those that
    attend by code of their own), ``switched`` and ``split`` (see ``Plan``), ``base_model_type``,
    ``attn_implementation`` (that of the dense model), ``sparse_implementation`` and ``version``.
    Version 0.1.0 switched every configuration, and has ``dense`` for modules left as they were.
    """

    adasparse: dict[str, Any]
    dense_class: ClassVar[type[PreTrainedConfig]]

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what goes into ``config.json``, where the model is of type ``MODEL_TYPE``."""
        values: dict[str, Any] = super().to_diff_dict()  # type: ignore[misc]
        values["model_type"] = MODEL_TYPE
        # A dense class that is told to load the checkpoint fails on this, rather than run softmax.
        values["attn_implementation"] = self.adasparse["sparse_implementation"]
        return values

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a file."""
        values, rest = super().get_config_dict(*args, **kwargs)  # type: ignore[misc]
        return _with_base_type(values), rest

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a configuration of what ``to_dict`` or ``to_diff_dict`` gave."""
        return super().from_dict(_with_base_type(config_dict), **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the dense class, which can be imported."""
        return reduced_by(sparse_config_class, super().__reduce_ex__(protocol), self.dense_class)


def _with_base_type(values: dict[str, Any]) -> dict[str, Any]:
    if values.get("model_type") != MODEL_TYPE:
        return values
    return {**values, "model_type": values["adasparse"]["base_model_type"]}


class SparseModelMixin(ContinuousBatchingMixin):
    """Additions of the sparse counterpart of a model class: its exponents, and their loading."""

    config: Any
    dense_class: ClassVar[type[PreTrainedModel]]

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        record = config.adasparse
        sparse, dense = record["sparse_implementation"], record["attn_implementation"]
        dense_top = dense[""] if isinstance(dense, dict) else dense
        top = record.get("switched", {}).get("config", dense_top)
        if config._attn_implementation not in (sparse, top, None):
            raise ValueError(
                f"This model is sparse: its attn_implementation is {sparse!r}; "
                f"got {config._attn_implementation!r}. Leave it out, and call "
                "adasparse.restore(model) for softmax attention."
            )
        # Built dense and switched then: constructors choose classes by the implementation, or have
        # an Auto class choose them by the configuration.
        config = copy.deepcopy(config)
        sparse_class = type(config)
        config.__class__ = sparse_class.dense_class
        del config.adasparse
        config._attn_implementation = loadable(dense)
        vars(self)["config_class"] = sparse_class.dense_class  # some check what they are given
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        del vars(self)["config_class"]
        self.config.__class__ = sparse_class
        self.config.adasparse = record
        attach(self, record)  # type: ignore[arg-type]

    def initialize_weights(self) -> None:
        """Set what no checkpoint has set, exponents included."""
        super().initialize_weights()  # type: ignore[misc]
        for module in self.modules():  # type: ignore[attr-defined]
            if isinstance(module, SparseHeads) and not all(
                getattr(x, "_is_hf_initialized", False)
                for x in (*module.parameters(), *module.buffers())
            ):
                module.reset_parameters()

    def set_attn_implementation(self, attn_implementation: Any, **kwargs: Any) -> None:
        """Refuse: another implementation would silently be dense."""
        sparse = self.config.adasparse["sparse_implementation"]
        if attn_implementation != sparse:
            raise ValueError(
                f"The attention of a sparse model is {sparse!r}; got {attn_implementation!r}. "
                "Call adasparse.restore(model) first."
            )
        stop_paging(self)  # type: ignore[arg-type]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return parameters and buffers, but not for a dense model around this one to save.

        Its files would say nothing of sparse attention, and load as softmax.
        """
        outer = _saving_model()
        if outer is not None and not isinstance(outer, SparseModelMixin):
            raise ValueError(
                f"{type(outer).__name__} cannot be saved: a part of it, {type(self).__name__}, is "
                "sparse, and what loads the files would make softmax of it. Save that part alone, "
                f"or restore() it and make {type(outer).__name__} sparse, with "
                "SparsityConfig(modules=...) where only some modules are meant."
            )
        return super().state_dict(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the dense classes, which can be imported."""
        dense_config = type(self).config_class.dense_class  # type: ignore[attr-defined]
        return reduced_by(
            _sparse_model_class, super().__reduce_ex__(protocol), self.dense_class, dense_config
        )

    @classmethod
    def maybe_distribute_model(cls, model: Any, distributed_config: Any, mesh_manager: Any) -> Any:
        """Distribute the model as its class does; exponents follow the shard of their heads."""
        model = super().maybe_distribute_model(  # type: ignore[misc]
            model, distributed_config, mesh_manager
        )
        if mesh_manager is not None and distributed_config.tp_size > 1:
            for module in model.modules():
                if isinstance(module, SparseHeads):
                    module.mesh = mesh_manager.get_mesh("tp")
        return model

    # What transformers finds out from the file that a class is in holds for the dense class.

    @classmethod
    def is_custom_code(cls) -> bool:
        """Tell whether weights are loaded without the renaming that the library's own get."""
        return cls.dense_class.is_custom_code()

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return cls.dense_class._can_set_attn_implementation()

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return cls.dense_class._can_set_experts_implementation()


def _saving_model() -> Any:
    """Return the model whose ``save_pretrained`` is running, if any is."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is PreTrainedModel.save_pretrained.__code__:
            return frame.f_locals.get("self")
        frame = frame.f_back  # type: ignore[assignment]
    return None


def attach(model: nn.Module, record: dict[str, Any]) -> None:
    """Give the modules of ``record`` their exponents; leave the others of it dense."""
    sparsity = SparsityConfig.from_dict(record["sparsity"])
    for name, sizes in record["modules"].items():
        module = submodule(model, name)
        if module is not None:
            heads = SparseHeads(sparsity, **sizes)
            module.add_module(CHILD, heads)
            heads.train(module.training)
            if sparsity.length_scale == "adaptive":
                hook = module.register_forward_pre_hook(keep_input, with_kwargs=True)
                module._adasparse_hook = hook  # type: ignore[assignment]
    for name in record.get("through_softmax", ()):
        module = submodule(model, name)
        if module is not None:
            route_through_softmax(module)
    _plan(model, record).apply(model)
    leave_others_dense(model)


def _plan(model: nn.Module, record: dict[str, Any]) -> Plan:
    if "switched" in record:
        return Plan(switched=record["switched"], split=tuple(record["split"]))
    return Plan.for_all(model, record["sparse_implementation"])


def detach(model: nn.Module) -> None:
    """Undo ``attach``."""
    stop_paging(model)
    for module in list(model.modules()):
        if isinstance(module._modules.get(CHILD), SparseHeads):
            del module._modules[CHILD]
        unroute(module)
        module.__dict__.pop(LEFT_DENSE, None)
        hook = module.__dict__.pop("_adasparse_hook", None)
        if hook is not None:
            hook.remove()
    if has_plan(model):
        undo_plan(model)


def _as_in(dense: type) -> dict[str, Any]:
    return {"__module__": __name__, "__qualname__": dense.__qualname__, "__doc__": dense.__doc__}


@cache
def sparse_config_class(dense: Any) -> Any:
    """Return the sparse counterpart of a configuration class, known to the Auto classes."""
    sparse: Any = type(dense.__name__, (SparseConfigMixin, dense), _as_in(dense))
    sparse.dense_class = dense
    for auto in vars(modeling_auto).values():
        mapping = getattr(auto, "_model_mapping", None)
        if isinstance(auto, type) and mapping is not None and dense in mapping:
            known = mapping[dense]
            if isinstance(known, tuple):
                counterpart: Any = tuple(sparse_model_class(x, sparse) for x in known)
            else:
                counterpart = sparse_model_class(known, sparse)
            mapping.register(sparse, counterpart, exist_ok=True)
    return sparse


@cache
def sparse_model_class(dense: Any, config_class: Any) -> Any:
    """Return the sparse counterpart of a model class."""
    strict = set(dense._keep_in_fp32_modules_strict or ())
    namespace = {
        **_as_in(dense),
        "config_class": config_class,
        "dense_class": dense,
        "_keep_in_fp32_modules_strict": strict | {CHILD},
        # Continuous batching would switch to it, if it is installed.
        "_supports_flash_attn": False,
    }
    sparse = type(dense.__name__, (SparseModelMixin, dense), namespace)
    let_record(sparse, dense)
    return sparse


def _sparse_model_class(dense: Any, dense_config: Any) -> Any:
    return sparse_model_class(dense, sparse_config_class(dense_config))


def new_record(
    config: PreTrainedConfig, result: Result, sparsity: SparsityConfig, changed: Iterable[str]
) -> dict[str, Any]:
    """Return what ``config.adasparse`` holds, for a model that is still dense."""
    found = {name: result.found[name] for name in changed}
    own_code = [name for name, attention in found.items() if attention.is_own_code]
    is_through_interface = len(own_code) < len(found)
    plan = result.plan if is_through_interface else Plan(switched={})
    return {
        "version": version("adasparse"),
        "base_model_type": config.model_type,
        "attn_implementation": recorded(config),
        "sparse_implementation": NAME if is_through_interface else SOFTMAX_NAME,
        "sparsity": sparsity.to_dict(),
        "modules": {
            name: {"num_heads": attention.num_heads, "embed_dim": attention.embed_dim}
            for name, attention in found.items()
        },
        "through_softmax": own_code,
        "switched": plan.switched,
        "split": list(plan.split),
    }


class SparseModelConfig(PreTrainedConfig):
    """Reads the configuration of any sparse model: what ``MODEL_TYPE`` stands for in AutoConfig."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return a configuration of the class that the model needs."""
        dense: Any = CONFIG_MAPPING[config_dict["adasparse"]["base_model_type"]]
        return sparse_config_class(dense).from_dict(config_dict, **kwargs)


AutoConfig.register(MODEL_TYPE, SparseModelConfig, exist_ok=True)


def __getattr__(name: str) -> Any:
    """Find classes by name, as unpickling does."""
    dense: Any = None if name.startswith("_") else getattr(transformers, name, None)
    bases: tuple[Any, ...] = dense.__mro__ if isinstance(dense, type) else ()
    if PreTrainedConfig in bases:
        return sparse_config_class(dense)
    if PreTrainedModel in bases:
        return _sparse_model_class(dense, dense.config_class)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
