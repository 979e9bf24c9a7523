"""Numbers in words, through num2words, in the forms that sentences need."""

from functools import cache

try:
    from num2words import num2words
except ImportError as error:
    raise ModuleNotFoundError(
        "adasparse.demo needs num2words: pip install 'adasparse[translation]'.", name="num2words"
    ) from error

__all__ = ["countable", "ordinal", "words", "year"]


@cache
def words(number: int, lang: str) -> str:
    """A cardinal number as counted: ``dreiundzwanzig``, ``twenty-three``."""
    return str(num2words(number, lang=lang))


@cache
def ordinal(number: int, lang: str) -> str:
    """The place in an order: ``dritte``, ``third``."""
    return str(num2words(number, lang=lang, to="ordinal"))


@cache
def year(number: int, lang: str) -> str:
    """A year as it is read: ``neunzehnhundertneunzig``, ``nineteen ninety``."""
    return str(num2words(number, lang=lang, to="year"))


def countable(low: int, high: int) -> list[int]:
    """Numbers in ``low..high`` that stand before a noun without dispute.

    German grammars disagree about what follows 101, 201 and so on (*hunderteins Bücher*,
    *hundertein Bücher*, *hundertundein Buch*): they are left out.
    """
    return [number for number in range(low, high + 1) if number % 100 != 1]
