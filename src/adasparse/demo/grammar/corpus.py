"""Parallel corpora from the grammar: distinct sentences, the same on every machine."""

from dataclasses import dataclass
from random import Random

from adasparse.demo.grammar import german_english
from adasparse.demo.grammar.spaces import Build, Space

__all__ = ["PAIRS", "GeneratedCorpus", "count_sentences", "generate"]

Both = tuple[str, str]
PAIRS = ("de-en", "en-de")
#: Draws per wanted sentence before the grammar is held to be exhausted.
PATIENCE = 30


@dataclass(frozen=True)
class GeneratedCorpus:
    """Pairs of source and target sentence; no sentence occurs twice, on either side."""

    source_lang: str
    target_lang: str
    train: list[Both]
    dev: list[Both]
    test: list[Both]


def generate(
    pair: str, *, train: int = 20000, dev: int = 500, test: int = 500, seed: int = 0
) -> GeneratedCorpus:
    """Return a corpus of distinct sentence pairs for one of ``PAIRS``.

    Dev and test are drawn before train: they stay the same when only the size of train changes.

    Args:
        pair: Source and target language, such as ``"de-en"``.
        train: Number of training pairs.
        dev: Number of pairs to choose a model by.
        test: Number of pairs to judge it by.
        seed: Another seed gives other sentences; the same seed gives the same bytes everywhere.

    Example:
        >>> corpus = generate("de-en", train=2, dev=0, test=0)
        >>> len(corpus.train), corpus.target_lang
        (2, 'en')
    """
    source, target = _languages(pair)
    for name, value in (("train", train), ("dev", dev), ("test", test), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0; got {value!r}.")
    pairs = _distinct(pair, test + dev + train, Random(seed))
    return GeneratedCorpus(
        source_lang=source,
        target_lang=target,
        test=pairs[:test],
        dev=pairs[test : test + dev],
        train=pairs[test + dev :],
    )


def count_sentences(pair: str) -> int:
    """Return the number of meanings that the grammar of a pair can say."""
    return _sentences(pair).size


def _languages(pair: str) -> tuple[str, str]:
    if pair not in PAIRS:
        raise ValueError(f"pair must be one of {', '.join(PAIRS)}; got {pair!r}.")
    source, _, target = pair.partition("-")
    return source, target


def _sentences(pair: str) -> Space[Both]:
    _languages(pair)
    german_first = german_english.sentences()
    if pair == "de-en":
        return german_first
    return Build(lambda both: (both[1], both[0]), german_first)


def _distinct(pair: str, wanted: int, rng: Random) -> list[Both]:
    """That many pairs, no two of which share a sentence."""
    space = _sentences(pair)
    sources: set[str] = set()
    targets: set[str] = set()
    pairs: list[Both] = []
    for _ in range(wanted * PATIENCE):
        if len(pairs) == wanted or wanted > space.size:
            break
        source, target = space.sample(rng)
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            pairs.append((source, target))
    if len(pairs) < wanted:
        raise ValueError(
            f"train, dev and test together must be fewer than the different sentences of {pair}, "
            f"which are at most {space.size:,}, the rarest of them seldom drawn; got {wanted:,}."
        )
    return pairs
