"""Retrieval passages: ordinary text in which facts are stated, and asked for later.

Novels give a small language model no reason to learn that a number stated once has to be found
again. A share of passages with such numbers does. The facts are those of ``needle`` in form, but of
other names, so that no fact that a model is tested with occurs in what it was trained on.
"""

import math
import random
import re
from collections.abc import Iterator

from adasparse.longcontext.needle import DIGITS, QUESTION, TEST_NAMES

#: Names of the facts, none of them in the test.
NAMES = (
    *("Amelia", "Andrew", "Anna", "Arthur", "Charles", "Clara", "Daniel", "David", "Edward"),
    *("Ellen", "Frank", "George", "Grace", "Harriet", "Helen", "Jack", "James", "Jane", "Laura"),
    *("Margaret", "Martha", "Oliver", "Paul", "Peter", "Philip", "Pierre", "Rebecca", "Rose"),
    *("Sarah", "Simon", "Susan", "Thomas", "Walter", "William"),
)
assert not set(NAMES) & set(TEST_NAMES)

#: Parts of invented names.
_ONSETS = ("b", "br", "ch", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "st", "t", "th", "v")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "io", "y")
_CODAS = ("", "l", "n", "nd", "r", "s", "th")

#: Where a fact may stand: between sentences, or between lines.
_GAP = re.compile(r"(?<=[.!?]) +|\n")


def add_retrieval(
    text: str,
    *,
    share: float = 0.5,
    max_facts: int = 4,
    passage: int = 1500,
    shortest: int | None = None,
    questions: int = 1,
    invented: float = 0.0,
    seed: int = 1,
) -> str:
    """Return a text in which a share of passages states facts and asks for them later.

    A fact is a line such as ``The secret number of Anna is 40721.``; the same line again, later in
    its passage, is the question, whose number can be told from the first one alone. Both stand
    between sentences in random places, and a passage ends with a question. Of several facts in a
    passage each has a name and a number of its own. The rest of the text stays as it is.

    Small models learn to answer from text much of which is answers: from short passages, of 20
    characters and more, whose facts are asked for three times.

    Args:
        text: Any text.
        share: Share of the passages that get facts.
        max_facts: Facts of a passage at most; between 1 and this number are equally likely.
        passage: Characters of a passage, about; it should fit into the context of training.
        shortest: Characters of the shortest passage, about, if they differ in length: evenly on a
            logarithmic scale up to ``passage``.
        questions: How many times each fact is asked for.
        invented: Share of the names that are invented anew, such as Brybruth; models that know a
            few dozen names alone do not look for others.
        seed: Seed of facts and places.

    Example:
        >>> print(add_retrieval("It rained. We stayed. Night fell.", share=1.0, max_facts=1))
        It rained.
        The secret number of James is 17776.
        We stayed. Night fell.
        The secret number of James is 17776.
    """
    least = passage if shortest is None else shortest
    if not 0 <= share <= 1 or not 1 <= max_facts <= len(NAMES) or questions < 1:
        raise ValueError(
            f"share must be between 0 and 1, max_facts between 1 and {len(NAMES)}, and questions "
            f"at least 1; got {share}, {max_facts} and {questions}."
        )
    if not 0 <= invented <= 1:
        raise ValueError(f"invented must be between 0 and 1; got {invented}.")
    if not 1 <= least <= passage:
        raise ValueError(
            f"passage must be at least 1, and shortest between 1 and passage; got {passage} and "
            f"{shortest}."
        )
    rng = random.Random(seed)
    sizes = random.Random(f"{seed} sizes")
    parts = []
    for each in _passages(text, least, passage, sizes):
        has_facts = rng.random() < share
        if has_facts:
            names = _names(rng, rng.sample(NAMES, rng.randint(1, max_facts)), invented)
            each = _with_facts(each, rng, names, questions)
        parts.append(each)
    return "".join(parts)


def _passages(text: str, least: int, most: int, rng: random.Random) -> Iterator[str]:
    """Cut a text at line breaks into passages of at least so many characters, but for the last."""
    start = 0
    while start < len(text):
        size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
        end = text.find("\n", start + size) + 1
        yield text[start : end or len(text)]
        start = end or len(text)


def _names(rng: random.Random, names: list[str], invented: float) -> list[str]:
    """Replace a share of names by invented ones."""
    for i in range(len(names) if invented else 0):
        if rng.random() < invented:
            taken = (*TEST_NAMES, *names)
            names[i] = next(name for name in iter(lambda: _invented(rng), "") if name not in taken)
    return names


def _invented(rng: random.Random) -> str:
    """Return a name of one to three syllables."""
    syllables = [rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3))]
    return ("".join(syllables) + rng.choice(_CODAS)).capitalize()


def _with_facts(text: str, rng: random.Random, names: list[str], questions: int) -> str:
    """Return a passage with facts and questions; its last line is a question."""
    gaps = [match.span() for match in _GAP.finditer(text)]
    gaps = [gap for gap in gaps if gap[1] < len(text)]
    lines: dict[int, list[str]] = {}
    end = len(gaps)
    for i, name in enumerate(names):
        number = "".join(rng.choice("0123456789") for _ in range(DIGITS))
        fact = f"{QUESTION.format(name=name)} {number}."
        stated, *asked = sorted(rng.randrange(end + 1) for _ in range(1 + questions))
        asked[-1] = end if i == 0 else asked[-1]
        for place in (min(stated, max(0, end - 1)), *asked):
            lines.setdefault(place, []).append(fact)
    return _inserted(text, gaps, lines)


def _inserted(text: str, gaps: list[tuple[int, int]], lines: dict[int, list[str]]) -> str:
    """Put lines into gaps of a text, by the number of the gap; the last is the end of the text."""
    body = text.rstrip("\n")
    parts, start = [], 0
    for place in sorted(lines):
        first, last = gaps[place] if place < len(gaps) else (len(body), len(body))
        parts += [body[start:first], *lines[place], "\n" if last < len(body) else ""]
        start = last
    return "".join(parts) + body[start:] + text[len(body) :]
