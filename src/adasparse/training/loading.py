"""Loading of saved models and tokenizers: none of their code, all of their weights."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from adasparse.training.memory import available_memory

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
#: Patterns of the files of tokenizers, of which each kind has one at least.
_TOKENIZER_FILES = ("*token*", "*vocab*", "*.model", "*.spm")
#: Files of a model folder that may name code to run.
_MAY_NAME_CODE = (
    *(_CONFIG, "tokenizer_config.json", "generation_config.json", "processor_config.json"),
    *("preprocessor_config.json", "video_preprocessor_config.json"),
)
#: Settings of a configuration that some weight is at least as large as.
_SIZES = (
    *("d_model", "hidden_size", "vocab_size", "intermediate_size"),
    *("encoder_ffn_dim", "decoder_ffn_dim"),
)
#: Layers that no model here has.
_MOST_LAYERS = 10_000
#: Tokens that a loaded model reads, to see that it runs.
_TRIAL = 4
#: Names of weights that belong to a numbered layer.
_LAYER = re.compile(r"(^|\.)\d+\.")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {_short(error)}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it must hold a JSON object.")
    return content


def refuse_code(folder: Path) -> None:
    """Refuse a folder that names Python code of its own for transformers to run."""
    for name in _MAY_NAME_CODE:
        path = folder / name
        if path.is_file() and "auto_map" in read_json(path):
            raise ValueError(
                f"{path} names Python code of its own (auto_map), which adasparse never runs. If "
                "transformers has a class for this model, remove auto_map from the file."
            )


def load_config(folder: str | Path) -> PretrainedConfig:
    """Return the configuration of a saved model; damaged or foreign ones raise a ValueError."""
    refuse_code(Path(folder))
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # damaged files raise whatever comes first
        raise ValueError(f"The model in {folder} cannot be loaded: {_short(error)}.") from error
    return config


def load_model(
    cls: Any, folder: str | Path, *, use_gpu: bool = False, is_writer: bool = False
) -> PreTrainedModel:
    """Return a saved model in evaluation mode.

    Args:
        cls: An Auto class of transformers, or the class of a model.
        folder: Folder of the model.
        use_gpu: Whether to put it on the GPU if there is one.
        is_writer: Whether it will generate text: its settings for that are tried out, too.

    Raises:
        ValueError: If there is no model, if it brings code of its own, if its files are damaged or
            contradict each other, if weights are missing or not finite, or if it cannot read a few
            tokens.
    """
    folder = Path(folder)
    if not (folder / _CONFIG).is_file():
        unfinished = "; its training has not ended" if (folder / "checkpoints").is_dir() else ""
        raise ValueError(
            f"A run must be a folder with a trained model; there is no {folder / _CONFIG}"
            f"{unfinished}."
        )
    refuse_code(folder)
    config = read_json(folder / _CONFIG)
    try:
        _check_sizes(config, folder / _WEIGHTS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's about damaged files; the errors say more
            model, report = cls.from_pretrained(
                folder,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # the check below says more
            )
        _check_weights(model, report, config)
        _check_types(model, folder / _WEIGHTS)
        if use_gpu and torch.cuda.is_available():
            model.to("cuda")
        loaded: PreTrainedModel = model.eval()
        _check_pass(loaded, is_writer=is_writer)
    except Exception as error:  # damaged files raise whatever comes first
        raise ValueError(f"The model in {folder} cannot be loaded: {_short(error)}.") from error
    return loaded


def load_tokenizer(folder: str | Path, cls: Any = AutoTokenizer) -> PreTrainedTokenizerBase:
    """Return a saved tokenizer.

    Args:
        folder: Folder of the tokenizer.
        cls: Class to load it with.

    Raises:
        ValueError: If there is none, if it brings code of its own, or if its files are damaged.
    """
    folder = Path(folder)
    refuse_code(folder)
    if folder.is_dir() and not any(any(folder.glob(x)) for x in _TOKENIZER_FILES):
        raise ValueError(f"There is no tokenizer in {folder}, so that it cannot read text.")
    try:
        tokenizer: PreTrainedTokenizerBase = cls.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
        tokenizer.decode(tokenizer("a")["input_ids"])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever comes first; panics in Rust are no Exception
        raise ValueError(f"The tokenizer in {folder} cannot be loaded: {_short(error)}.") from error
    return tokenizer


def check_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path
) -> None:
    """Refuse a tokenizer with ids that a model has no embedding for, or without tokens it needs."""
    embeddings: Any = model.get_input_embeddings()
    size = len(embeddings.weight)
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= size:
        raise ValueError(
            f"Model and tokenizer in {folder} must be of one training: the model has {size} "
            f"tokens, the tokenizer an id of {largest}."
        )
    ends = (tokenizer.pad_token, tokenizer.eos_token)
    if model.config.is_encoder_decoder and None in ends:
        raise ValueError(
            f"The tokenizer in {folder} must have a token for padding and one for the end; got "
            f"{ends[0]!r} and {ends[1]!r}."
        )


def _short(error: BaseException) -> str:
    """Return the message of an error on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, KeyError):  # its message is the key alone
        text = f"{text} is missing"
    return (text if len(text) <= 300 else f"{text[:300]} …").rstrip(".")


def _check_sizes(config: dict[str, Any], weights: Path) -> None:
    """Refuse sizes that no weight has, before anything is made of them."""
    layers = {name: x for name, x in config.items() if "layers" in name and isinstance(x, int)}
    for name, number in layers.items():
        if not 0 <= number <= _MOST_LAYERS:
            raise ValueError(f"config.json says {name}={number}")
    if weights.is_file():
        with safe_open(weights, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        largest = max((size for shape in shapes for size in shape), default=0)
        for name in _SIZES:
            size = config.get(name)
            if isinstance(size, int) and not 0 < size <= largest:
                raise ValueError(
                    f"config.json says {name}={size}, but the largest size of a weight is {largest}"
                )
    if config.get("is_encoder_decoder"):  # these may compute their positions
        positions, width = config.get("max_position_embeddings"), config.get("d_model")
        sizes = [x for x in (positions, width) if isinstance(x, int)]
        if len(sizes) == 2 and not 0 < sizes[0] * sizes[1] * 16 < (available_memory() or 2**40):
            raise ValueError(f"config.json says max_position_embeddings={positions}")


def _check_weights(model: PreTrainedModel, report: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuse a model whose weights are not those of its configuration, or not finite."""
    saved = config.get("architectures")  # of another class, a model lacks weights of its head
    is_whole = not saved or type(model).__name__ in saved
    missing = [x for x in report["missing_keys"] if is_whole or _LAYER.search(x)]
    surplus = [x for x in report["unexpected_keys"] if _LAYER.search(x)]
    if report["mismatched_keys"]:
        name, got, wanted = sorted(report["mismatched_keys"])[0]
        raise ValueError(
            f"{name} must have shape {tuple(wanted)} by config.json; it has {tuple(got)}"
        )
    if missing:
        raise ValueError(f"its weights are incomplete; missing: {_list(missing)}")
    if surplus:
        raise ValueError(f"it has weights that config.json does not name: {_list(surplus)}")
    # Buffers too: Marian adds one to its logits.
    damaged = [name for name, x in model.state_dict().items() if not torch.isfinite(x).all()]
    if damaged:
        raise ValueError(f"it has weights that are not finite: {_list(damaged)}")


@torch.no_grad()
def _check_pass(model: PreTrainedModel, *, is_writer: bool) -> None:
    """Refuse a model that fails on any text: settings out of range show only when it runs."""
    if model.main_input_name != "input_ids":
        return
    tokens = torch.zeros(1, _TRIAL, dtype=torch.long, device=model.device)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if is_writer:
        model.generate(**inputs, max_new_tokens=1, max_length=None)  # type: ignore[operator]
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    if not (model(**inputs)[0] < torch.inf).all():  # NaN is not below it, either
        raise ValueError("its outputs are not finite")


def _check_types(model: PreTrainedModel, weights: Path) -> None:
    """Refuse whole numbers in a file for weights that are none: loading would convert them."""
    if not weights.is_file():
        return
    state = model.state_dict()
    with safe_open(weights, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            dtype = file.get_slice(name).get_dtype()
            if name in state and state[name].is_floating_point() and "F" not in dtype:
                raise ValueError(f"{name} must be floating-point numbers; the file has {dtype}")


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(sorted(names)[:3]) + more
