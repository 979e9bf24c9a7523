"""Trained translation models, loaded from the folder of a run."""

from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

import adasparse.integrations.huggingface as _sparse_models  # noqa: F401  # Auto classes know them
from adasparse.training.loading import check_vocabulary, load_model, load_tokenizer, read_json


def load_run(run: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer of a run, or of any encoder-decoder saved by transformers.

    The model is in evaluation mode, on the GPU if there is one. A folder with code of its own, with
    damaged files or with missing weights raises a ValueError.
    """
    _refuse_decoder(Path(run))
    model = load_model(AutoModelForSeq2SeqLM, run, use_gpu=True, is_writer=True)
    tokenizer = load_tokenizer(run)
    check_vocabulary(model, tokenizer, run)
    return model, tokenizer


def _refuse_decoder(run: Path) -> None:
    """Refuse a language model, and runs of other commands; transformers would list its classes."""
    path = run / "config.json"
    config = read_json(path) if path.is_file() else {}
    names = [str(x) for x in config.get("architectures") or [] if str(x).endswith("ForCausalLM")]
    if names and not config.get("is_encoder_decoder"):
        raise ValueError(
            "The run must be one of 'adasparse train', or an encoder-decoder of transformers; the "
            f"model in {run} is a {names[0]}."
        )
