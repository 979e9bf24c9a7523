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
    seed: int = 1,
) -> str:
    """Return a text in which a share of passages states facts and asks for them later.

    A fact is a line such as ``The secret number of Anna is 40721.``; the same line again, later in
    its passage, is the question, whose number can be told from the first one alone. Both stand
    between sentences in random places, and a passage ends with a question. Of several facts in a
    passage each has a name and a number of its own. The rest of the text stays as it is.

    Small models learn to answer from passages of which much is questions: short ones, with many
    facts that are asked for more than once.

    Args:
        text: Any text.
        share: Share of the passages that get facts.
        max_facts: Facts of a passage at most; between 1 and this number are equally likely.
        passage: Characters of a passage, about; it should fit into the context of training.
        shortest: Characters of the shortest passage, about, if they differ in length: evenly on a
            logarithmic scale up to ``passage``.
        questions: How many times each fact is asked for.
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
        parts.append(_with_facts(each, rng, max_facts, questions) if has_facts else each)
    return "".join(parts)


def _passages(text: str, least: int, most: int, rng: random.Random) -> Iterator[str]:
    """Cut a text at line breaks into passages of at least so many characters, but for the last."""
    start = 0
    while start < len(text):
        size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
        end = text.find("\n", start + size) + 1
        yield text[start : end or len(text)]
        start = end or len(text)


def _with_facts(text: str, rng: random.Random, max_facts: int, questions: int) -> str:
    """Return a passage with facts and questions; its last line is a question."""
    gaps = [match.span() for match in _GAP.finditer(text)]
    gaps = [gap for gap in gaps if gap[1] < len(text)]
    lines: dict[int, list[str]] = {}
    end = len(gaps)
    for i, name in enumerate(rng.sample(NAMES, rng.randint(1, max_facts))):
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
