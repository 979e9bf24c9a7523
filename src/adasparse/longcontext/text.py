"""Texts as tokens: a byte-pair encoding of their own, and arrays on the disk."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from adasparse._files import TextFile, errors_named
from adasparse.training.checkpoints import HASHES, is_intact, seal

Tokens = NDArray[np.uint32]

EOS = "<eos>"
#: Line breaks, or a word, two digits or other characters with the space before, or white space.
#: None of them but the first goes beyond the end of a line. Of a number two digits are a token:
#: small models learn to copy these, while single digits are too much alike to tell their places in
#: a number by, and more digits make hundreds of rare tokens. The time to learn from a piece grows
#: with the square of its length, which is why it has an end.
_PIECE = re.sub(r"\+", "{1,1000}", r"\n+| ?\p{L}+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|[^\S\n]+")
#: Where a text can be cut without changing its tokens.
_CUT = re.compile(r"(?<=\n)(?=[^\n])")
#: Pieces that are encoded together.
_TOGETHER = 4096


def read_text(path: str | Path) -> str:
    """Return the text of a file in UTF-8, plain or gzip, with newlines as line ends."""
    return TextFile(path).text()


def train_tokenizer(text: str, *, vocab_size: int) -> PreTrainedTokenizerFast:
    r"""Return a tokenizer learned from a text; it reads any other, and decodes to the same.

    Example:
        >>> tokenizer = train_tokenizer("to be or not to be", vocab_size=260)
        >>> tokenizer.decode(tokenizer("not seen: é\n")["input_ids"])
        'not seen: é\n'
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        _pieces(text),
        BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[EOS],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            min_frequency=2,
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=EOS,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # special tokens are not looked for in texts
        model_input_names=["input_ids", "attention_mask"],
    )


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> Tokens:
    """Return the tokens ``(n,)`` of a text of any length."""
    pieces = list(_pieces(text))
    found = [np.empty(0, dtype=np.uint32)]
    for start in range(0, len(pieces), _TOGETHER):
        rows = tokenizer(pieces[start : start + _TOGETHER], return_attention_mask=False)
        found += [np.array(row, dtype=np.uint32) for row in rows["input_ids"]]
    return np.concatenate(found)


def _pieces(text: str) -> Iterator[str]:
    """Cut a text after line breaks."""
    return (piece for piece in _CUT.split(text) if piece)


def write_tokens(
    folder: Path, path: str | Path, *, vocab_size: int, context: int, dev_share: float
) -> None:
    """Write the tokens of a text and their tokenizer to a folder, unless they are there.

    The tokenizer is learned from what is trained on alone.

    Args:
        folder: Appears when it is complete.
        path: The text.
        vocab_size: Largest size of the vocabulary.
        context: Both parts must have that many tokens at least.
        dev_share: Share of the characters, from the end, that is not trained on.
    """
    if folder.is_dir():
        if (folder / HASHES).is_file() and not is_intact(folder):
            raise ValueError(
                f"The tokens in {folder} are damaged: remove the folder and add --resume to write "
                "them again."
            )
        return
    text = read_text(path)
    cut = round(len(text) * (1 - dev_share))
    parts = {"train": text[:cut], "dev": text[cut:]}
    tokenizer = train_tokenizer(parts["train"], vocab_size=vocab_size)
    staging = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        for name, part in parts.items():
            tokens = encode(tokenizer, part)
            if len(tokens) < context:
                raise ValueError(
                    f"The {name} part of {path} must have at least {context} tokens, one context; "
                    f"it has {len(tokens)}. Change dev_share or context, or give more text."
                )
            with errors_named(folder):
                np.save(staging / f"{name}.npy", tokens)
        with errors_named(folder):
            tokenizer.save_pretrained(staging)
            seal(staging)
            staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def open_tokens(folder: str | Path, name: str) -> Tokens:
    """Return the tokens of a part, ``"train"`` or ``"dev"``, as they are on the disk."""
    tokens: Tokens = np.load(Path(folder) / f"{name}.npy", mmap_mode="r")
    return tokens


class Blocks(Dataset[Tensor]):
    """A text cut into examples of ``context`` tokens; what is left at the end is left out."""

    def __init__(self, tokens: Tokens, context: int) -> None:
        self.tokens, self.context = tokens, context

    def __len__(self) -> int:
        return len(self.tokens) // self.context

    def __getitem__(self, number: int) -> Tensor:
        start = number * self.context
        return torch.from_numpy(self.tokens[start : start + self.context].astype(np.int64))
