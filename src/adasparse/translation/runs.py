"""Trained models, read from the folder of a run."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import adasparse.integrations.huggingface as _sparse_models  # noqa: F401  # Auto classes know them


def load_run(run: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer of a run, or of any encoder-decoder saved by transformers.

    The model is in evaluation mode, on the GPU if there is one.
    """
    run = Path(run)
    if not (run / "config.json").is_file():
        checkpoints = "; its training has not ended" if (run / "checkpoints").is_dir() else ""
        raise ValueError(
            f"A run must be a folder with a trained model; there is no {run / 'config.json'}"
            f"{checkpoints}."
        )
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(run)
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]
    return model.eval(), AutoTokenizer.from_pretrained(run)
