"""German sentences from meanings: articles, endings, verb forms and the order of words."""

from dataclasses import replace
from typing import Literal

from adasparse.demo.grammar.meaning import (
    Agreement,
    Clause,
    Clock,
    Date,
    Modal,
    Nominal,
    Noun,
    NounPhrase,
    Pair,
    Pronoun,
    Tense,
    Time,
    Verb,
    agreement,
)
from adasparse.demo.grammar.numbers import ordinal, words, year

__all__ = [
    "clock",
    "date",
    "nominal",
    "noun_phrase",
    "place",
    "question",
    "statement",
    "subordinate",
    "time",
]

Case = Literal["nom", "acc", "dat"]

MONTHS = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
]

#: Columns of the tables below: masculine, feminine, neuter, plural.
COLUMNS = {"m": 0, "f": 1, "n": 2}
ARTICLES = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
}
#: *dieser*, *jeder*, *welcher*, and the adjective where nothing before it shows the case.
STRONG = {
    "nom": ("er", "e", "es", "e"),
    "acc": ("en", "e", "es", "e"),
    "dat": ("em", "er", "em", "en"),
}
#: *ein*, *kein*, *mein*.
MIXED_ARTICLES = {
    "nom": ("", "e", "", "e"),
    "acc": ("en", "e", "", "e"),
    "dat": ("em", "er", "em", "en"),
}
#: The adjective after *der*, *dieser*, *jeder*, *alle*.
WEAK = {
    "nom": ("e", "e", "e", "en"),
    "acc": ("en", "e", "e", "en"),
    "dat": ("en", "en", "en", "en"),
}
#: The adjective after *ein*, *kein*, *mein*.
MIXED = {
    "nom": ("er", "e", "es", "en"),
    "acc": ("en", "e", "es", "en"),
    "dat": ("en", "en", "en", "en"),
}
RELATIVE = {**ARTICLES, "dat": ("dem", "der", "dem", "denen")}

STRONG_STEMS = {"this": "dies", "every": "jed", "which": "welch", "all": "all"}
MIXED_STEMS = {"a": "ein", "no": "kein", "my": "mein", "our": "unser"}
OPEN_STEMS = {"many": "viel", "several": "mehrer"}

HAVE = {"present": ("habe", "hat", "haben"), "past": ("hatte", "hatte", "hatten")}
BE = {"present": ("bin", "ist", "sind"), "past": ("war", "war", "waren")}
BECOME = ("werde", "wird", "werden")


def noun_phrase(phrase: NounPhrase, case: Case, owner: Agreement | None = None) -> str:
    """The noun phrase in a case; ``owner`` is what *his*, *her* or *their* own refers to."""
    column = 3 if phrase.is_plural else COLUMNS[phrase.noun.gender]
    determiner, endings = _determiner(phrase, case, column, owner)
    adjectives = [entry.de_stem + endings[case][column] for entry in phrase.adjectives]
    noun = _noun(phrase.noun, case, phrase.is_plural)
    text = " ".join(part for part in (determiner, *adjectives, noun) if part)
    return text + _relative(phrase, column) if phrase.relative else text


def nominal(item: Nominal, case: Case, owner: Agreement | None = None) -> str:
    """A name, pronoun, noun phrase or two joined ones in a case."""
    if isinstance(item, NounPhrase):
        return noun_phrase(item, case, owner)
    if isinstance(item, Pair):
        return f"{nominal(item.first, case, owner)} und {nominal(item.second, case, owner)}"
    if isinstance(item, Pronoun):
        return item.de[("nom", "acc", "dat").index(case)]
    return item.de if case == "nom" else item.de.replace("Herr ", "Herrn ")


def _determiner(
    phrase: NounPhrase, case: Case, column: int, owner: Agreement | None
) -> tuple[str, dict[str, tuple[str, str, str, str]]]:
    """The word before the adjectives and the table of their endings."""
    kind = phrase.determiner
    if phrase.count:
        return words(phrase.count, "de"), STRONG
    if kind in ("", "how many"):
        return ("wie viele" if kind else ""), STRONG
    if kind == "the":
        return ARTICLES[case][column], WEAK
    if kind in STRONG_STEMS:
        return STRONG_STEMS[kind] + STRONG[case][column], WEAK
    if kind in OPEN_STEMS:
        return OPEN_STEMS[kind] + STRONG[case][column], STRONG
    stem = _own(owner) if kind == "own" else MIXED_STEMS[kind]
    return stem + MIXED_ARTICLES[case][column], MIXED


def _own(owner: Agreement | None) -> str:
    assert owner is not None and owner.person == 3, "the owner is a third person"
    return "ihr" if owner.plural or owner.gender == "f" else "sein"


def _noun(noun: Noun, case: Case, is_plural: bool) -> str:
    if not is_plural:
        return noun.de + (noun.weak if case != "nom" else "")
    needs_n = case == "dat" and not noun.de_plural.endswith(("n", "s"))
    return noun.de_plural + ("n" if needs_n else "")


def _relative(phrase: NounPhrase, column: int) -> str:
    """The relative clause between its commas."""
    clause = phrase.relative
    assert clause is not None
    who = Pronoun(
        tuple(RELATIVE[case][column] for case in ("nom", "acc", "dat")),  # type: ignore[arg-type]
        ("", ""),
        agreement(phrase),
    )
    if clause.subject is None:
        return f", {subordinate(replace(clause, subject=who))},"
    return f", {subordinate(clause, who.de[1])},"


def _form(forms: tuple[str, str, str], who: Agreement) -> str:
    """One of first person singular, third person singular, plural."""
    return forms[2] if who.plural else forms[0 if who.person == 1 else 1]


def _verb_forms(verb: Verb, tense: Literal["present", "past"]) -> tuple[str, str, str]:
    """First and third person singular and the plural, without a separable prefix."""
    infinitive, third, past, _ = verb.de
    if infinitive in ("sein", "haben"):
        return (BE if infinitive == "sein" else HAVE)[tense]
    if tense == "past":
        return past, past, past + ("n" if past.endswith("e") else "en")
    if infinitive == "wissen":
        return third, third, infinitive
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    return stem + "e", third, infinitive


def _verbs(
    verb: Verb, tense: Tense, modal: Modal | None, who: Agreement
) -> tuple[str, list[str], str]:
    """The finite verb, what closes a main clause, and what closes a subordinate one."""
    infinitive, participle = verb.prefix + verb.de[0], verb.prefix + verb.de[3]
    if modal is not None:
        finite = modal.de[who.plural]
        return finite, [infinitive], f"{infinitive} {finite}"
    if tense == "future":
        finite = _form(BECOME, who)
        return finite, [infinitive], f"{infinitive} {finite}"
    if tense == "perfect":
        finite = _form((HAVE if verb.auxiliary == "haben" else BE)["present"], who)
        return finite, [participle], f"{participle} {finite}"
    finite = _form(_verb_forms(verb, tense), who)
    return finite, [verb.prefix] if verb.prefix else [], verb.prefix + finite


def _middle(clause: Clause, who: Agreement) -> list[str]:
    """Everything between the two halves of the verb, except the subject."""
    direct, denied = _denied(clause)
    light: list[str] = []
    receiver: list[str] = []
    thing: list[str] = []
    late: list[str] = []
    if clause.indirect is not None:
        target = light if isinstance(clause.indirect, Pronoun) else receiver
        target.append(nominal(clause.indirect, "dat", who))
    if direct is not None:
        text = nominal(direct, clause.verb.case, who)
        if clause.verb.de_preposition:
            late.append(f"{clause.verb.de_preposition} {text}")
        else:
            (light if isinstance(direct, Pronoun) else thing).append(text)
    if clause.complement is not None:
        late.append(clause.complement.source)
    before = [time(clause.time)] if clause.time else []
    before += [clause.often.source] if clause.often else []
    spot = [place(clause.place)] if clause.place else []
    if direct is None or _is_indefinite(direct):
        return [*light, *before, *receiver, *denied, *spot, *thing, *late]
    return [*light, *before, *spot, *receiver, *thing, *denied, *late]


def _denied(clause: Clause) -> tuple[Nominal | None, list[str]]:
    """The direct object, with *kein* if that is how it is denied, and *nicht*, *noch*, *schon*."""
    direct = clause.direct
    marks = {"already": ["schon"], "not yet": ["noch", "nicht"], "": []}[clause.phase]
    if clause.is_negated:
        marks = ["nicht"]
    if "nicht" in marks and isinstance(direct, NounPhrase) and _is_indefinite(direct):
        return replace(direct, determiner="no"), marks[:-1]
    return direct, marks


def _is_indefinite(item: Nominal | None) -> bool:
    if isinstance(item, Pair):
        return _is_indefinite(item.second)
    return isinstance(item, NounPhrase) and item.determiner in ("a", "", "no", "many", "several")


def statement(clause: Clause) -> str:
    """A main clause: the finite verb comes second, after the subject or the time."""
    assert clause.subject is not None
    who = agreement(clause.subject)
    finite, close, _ = _verbs(clause.verb, clause.tense, clause.modal, who)
    subject = nominal(clause.subject, "nom")
    if clause.time is None or not clause.time.is_first:
        return _join(subject, finite, *_middle(clause, who), *close)
    rest = _middle(replace(clause, time=None), who)
    return _join(time(clause.time), finite, subject, *rest, *close)


def question(clause: Clause, *, opener: str = "") -> str:
    """A question: the finite verb first, or after the asking word."""
    assert clause.subject is not None
    who = agreement(clause.subject)
    finite, close, _ = _verbs(clause.verb, clause.tense, clause.modal, who)
    return _join(opener, finite, nominal(clause.subject, "nom"), *_middle(clause, who), *close)


def subordinate(clause: Clause, opener: str = "") -> str:
    """A subordinate clause after its opener: the finite verb comes last."""
    assert clause.subject is not None
    who = agreement(clause.subject)
    _, _, close = _verbs(clause.verb, clause.tense, clause.modal, who)
    return _join(opener, nominal(clause.subject, "nom"), *_middle(clause, who), close)


def place(phrase: NounPhrase) -> str:
    """Where: *in* with the dative, *im* for *in dem*."""
    text = "in " + noun_phrase(phrase, "dat")
    return "im" + text.removeprefix("in dem") if text.startswith("in dem ") else text


def time(when: Time) -> str:
    """When: the day before the time of day."""
    parts = []
    if when.day is not None:
        parts.append(f"am {date(when.day)}" if isinstance(when.day, Date) else when.day.source)
    if when.clock is not None:
        parts.append(f"um {clock(when.clock)}")
    return " ".join(parts)


def date(day: Date, *, case: Case = "dat") -> str:
    """*dritten Mai neunzehnhundertneunzig* after *am*, *dritte Mai* after *der*."""
    text = f"{ordinal(day.day, 'de')}{'' if case == 'nom' else 'n'} {MONTHS[day.month]}"
    return f"{text} {year(day.year, 'de')}" if day.year else text


def clock(at: Clock) -> str:
    """A time of day as it is said: *halb vier*, *Viertel nach drei*, *drei Uhr*."""
    following = at.hour % 12 + 1
    hour, following_hour = words(at.hour, "de"), words(following, "de")
    if at.minute in (0, 25, 35) or at.minute % 5:
        full = "ein Uhr" if at.hour == 1 else f"{hour} Uhr"
        return f"{full} {words(at.minute, 'de')}" if at.minute else full
    if at.minute == 30:
        return f"halb {following_hour}"
    if at.minute in (15, 45):
        return f"Viertel nach {hour}" if at.minute == 15 else f"Viertel vor {following_hour}"
    if at.minute < 30:
        return f"{words(at.minute, 'de')} nach {hour}"
    return f"{words(60 - at.minute, 'de')} vor {following_hour}"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
