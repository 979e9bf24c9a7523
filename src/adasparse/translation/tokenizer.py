"""A joint subword tokenizer for any text: byte-pair encoding with bytes as a fallback.

A space becomes ``▁`` at the beginning of the word after it, so words are found again among their
tokens. Words, numbers and punctuation never merge with each other. That also keeps any text from
spelling a special token or a byte: ``</s>`` in a corpus is four ordinary tokens.
"""

import json
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from adasparse.training.recipe import MOST_TOKENS

__all__ = [
    "EOS",
    "MIN_VOCAB_SIZE",
    "PAD",
    "UNK",
    "check_vocab_size",
    "clean_text",
    "train_tokenizer",
]

PAD, EOS, UNK = "<pad>", "</s>", "<unk>"
SPECIAL = (PAD, EOS, UNK)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
#: Special tokens and bytes, and as many again for characters and what is merged from them.
MIN_VOCAB_SIZE = 2 * (len(SPECIAL) + len(BYTES))
#: Frequent characters up to this share of the text are tokens, and all of ASCII; others are bytes.
COVERAGE = 0.9999

SPACE = "▁"
#: Escapes of a literal ``▁``, and of the character that they begin with.
ESCAPE = "\x1a"
SPACE_ESCAPE, ESCAPE_ESCAPE = f"{ESCAPE}_", f"{ESCAPE}."
#: A word, a number or a run of other characters, with the space before it.
PIECE = rf"{SPACE}?\p{{L}}[\p{{L}}\p{{M}}]*|{SPACE}?\p{{N}}+|{SPACE}?[^\p{{L}}\p{{N}}{SPACE}]+"
#: Control characters that are no white space, and the byte order mark.
CONTROL = r"[\x{00}-\x{08}\x{0E}-\x{1F}\x{7F}-\x{84}\x{86}-\x{9F}\x{FEFF}]"

_CLEAN = (
    normalizers.Replace(Regex(CONTROL), ""),
    normalizers.NFC(),
    normalizers.Replace(Regex(r"\s+"), " "),
    normalizers.Strip(),
)
_MARK = (
    normalizers.Replace(ESCAPE, ESCAPE_ESCAPE),
    normalizers.Replace(SPACE, SPACE_ESCAPE),
    normalizers.Prepend(SPACE),
    normalizers.Replace(" ", SPACE),
)
_cleaner = normalizers.Sequence(list(_CLEAN))


def clean_text(text: str) -> str:
    """Text in Unicode's composed form, without control characters and superfluous white space."""
    cleaned: str = _cleaner.normalize_str(text)
    return cleaned


def check_vocab_size(vocab_size: int) -> None:
    """Refuse a vocabulary without room for bytes and characters, or larger than any.

    Raises:
        ValueError: Says how large it must be.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size must be at least {MIN_VOCAB_SIZE} (256 bytes, {len(SPECIAL)} special "
            f"tokens, and room for characters and words); got {vocab_size}."
        )
    if vocab_size > MOST_TOKENS:
        raise ValueError(f"vocab_size must be at most {MOST_TOKENS:,}; got {vocab_size}.")


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 8000, normalize: bool = True
) -> PreTrainedTokenizerFast:
    """A tokenizer learned from texts, the same for the same texts in any run.

    Every text is encoded without unknown tokens and ends in ``</s>``; decoding without special
    tokens gives back the text, normalized.

    Args:
        texts: Sentences of all languages; iterated over twice, so a generator will not do.
        vocab_size: Largest number of tokens. A small corpus may have fewer.
        normalize: Apply :func:`clean_text` first, now and whenever the tokenizer is used.

    Raises:
        ValueError: The vocabulary has no room for bytes and characters.
    """
    check_vocab_size(vocab_size)
    alphabet = _choose_alphabet(texts, vocab_size=vocab_size, normalize=normalize)
    learner = _assemble(models.BPE(), normalize=normalize)
    learner.train_from_iterator(
        iter(texts),
        BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[*SPECIAL, *BYTES],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            min_frequency=2,
            show_progress=False,
        ),
    )
    # The trainer makes bytes special, so that "<0x41>" in a text would become one: begin anew.
    learned = json.loads(learner.to_str())["model"]
    model = models.BPE(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],
        unk_token=UNK,
        byte_fallback=True,
    )
    return _wrap(_assemble(model, normalize=normalize))


def _choose_alphabet(texts: Iterable[str], *, vocab_size: int, normalize: bool) -> list[str]:
    """ASCII and the frequent characters, at most half of what the vocabulary has room for."""
    mark = normalizers.Sequence([*(_CLEAN if normalize else ()), *_MARK])
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(mark.normalize_str(text))
    limit = (vocab_size - len(SPECIAL) - len(BYTES)) // 2
    enough = COVERAGE * counts.total()
    alphabet: list[str] = []
    covered = 0
    ranked = sorted(counts.items(), key=lambda item: (not item[0].isascii(), -item[1], item[0]))
    for character, count in ranked[:limit]:
        if covered >= enough and not character.isascii():
            break
        alphabet.append(character)
        covered += count
    return alphabet


def _assemble(model: models.Model, *, normalize: bool) -> Tokenizer:
    """The steps before and after the model; decoding inverts the marks of spaces."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([*(_CLEAN if normalize else ()), *_MARK])
    tokenizer.pre_tokenizer = Split(Regex(PIECE), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
            decoders.Replace(SPACE_ESCAPE, SPACE),
            decoders.Replace(ESCAPE_ESCAPE, ESCAPE),
        ]
    )
    return tokenizer


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {EOS}",
        pair=f"$A {EOS} $B {EOS}",
        special_tokens=[(EOS, tokenizer.token_to_id(EOS))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # special tokens are not looked for in texts
        model_input_names=["input_ids", "attention_mask"],
    )
