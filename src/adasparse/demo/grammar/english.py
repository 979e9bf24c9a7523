"""English sentences from meanings: articles, auxiliaries, do-support and the order of words."""

from dataclasses import dataclass, replace

from adasparse.demo.grammar.meaning import (
    Agreement,
    Clause,
    Clock,
    Date,
    Nominal,
    NounPhrase,
    Pair,
    Pronoun,
    Time,
    agreement,
)
from adasparse.demo.grammar.numbers import ordinal, words, year

__all__ = [
    "clock",
    "date",
    "nominal",
    "noun_phrase",
    "plural",
    "present",
    "question",
    "statement",
    "time",
    "with_article",
]

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
#: Determiners that are other words in the plural.
PLURALS = {"this": "these", "all": "all the"}
AUXILIARIES = {"can": "could", "should": "should", "would like to": "would like to"}


def plural(noun: str) -> str:
    """The regular plural: *boxes*, *libraries*, *cars*."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def present(base: str) -> str:
    """The third person singular: *goes shopping*, *carries*, *buys*."""
    first, space, rest = base.partition(" ")
    if first == "have":
        return "has" + space + rest
    return (first + "es" if first == "go" else plural(first)) + space + rest


def with_article(text: str) -> str:
    """*a* or *an* before the text, by its first letter."""
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def nominal(item: Nominal, owner: Agreement | None = None, *, is_subject: bool = False) -> str:
    """A name, pronoun, noun phrase or two joined ones."""
    if isinstance(item, NounPhrase):
        return noun_phrase(item, owner)
    if isinstance(item, Pair):
        return f"{nominal(item.first, owner)} and {nominal(item.second, owner)}"
    if isinstance(item, Pronoun):
        return item.en[0 if is_subject else 1]
    return item.en


def noun_phrase(phrase: NounPhrase, owner: Agreement | None = None) -> str:
    """The noun phrase; ``owner`` is what *his*, *her* or *their* refers to."""
    noun = phrase.noun.en_plural if phrase.is_plural else phrase.noun.en
    core = " ".join([*(adjective.en for adjective in phrase.adjectives), noun])
    kind = phrase.determiner
    if phrase.count:
        core = f"{words(phrase.count, 'en')} {core}"
    elif kind == "a":
        core = with_article(core)
    elif kind == "own":
        core = f"{_own(owner)} {core}"
    elif kind:
        core = f"{PLURALS.get(kind, kind) if phrase.is_plural else kind} {core}"
    return f"{core} {_relative(phrase)}" if phrase.relative else core


def _own(owner: Agreement | None) -> str:
    assert owner is not None and owner.person == 3, "the owner is a third person"
    return "their" if owner.plural else "her" if owner.gender == "f" else "his"


def _relative(phrase: NounPhrase) -> str:
    clause = phrase.relative
    assert clause is not None
    opener = "who" if phrase.noun.kind in ("person", "young", "family") else "that"
    if clause.subject is not None:
        return f"{opener} {statement(clause, perfect_is_past=True)}"
    who = Pronoun(("", "", ""), (opener, opener), agreement(phrase))
    return statement(replace(clause, subject=who), perfect_is_past=True)


@dataclass(frozen=True)
class _Verbs:
    """The auxiliary that questions and *not* need, the rest, and what may stand for both."""

    auxiliary: str
    rest: str
    short: str = ""


def _verbs(clause: Clause, who: Agreement, *, is_simple: bool, perfect_is_past: bool) -> _Verbs:
    verb, tense = clause.verb, clause.tense
    base, past, participle, progressive = verb.en
    if tense == "perfect" and perfect_is_past:
        tense = "past"
    if clause.modal is not None:
        return _modal_verbs(clause.modal.en, base, is_past=tense == "past", who=who)
    if tense == "future":
        return _Verbs("will", base)
    if tense == "perfect":
        return _Verbs(_have(who), participle)
    if base == "be":
        return _Verbs(_be(who, is_past=tense == "past"), "")
    if tense == "past":
        return _Verbs("did", base, past)
    if is_simple or verb.is_state or clause.often is not None:
        return _Verbs(_do(who), base, present(base) if _is_third(who) else base)
    return _Verbs(_be(who, is_past=False), progressive)


def _modal_verbs(modal: str, base: str, *, is_past: bool, who: Agreement) -> _Verbs:
    if modal in AUXILIARIES:
        auxiliary, _, rest = (AUXILIARIES[modal] if is_past else modal).partition(" ")
        return _Verbs(auxiliary, f"{rest} {base}".strip())
    if modal == "be allowed to":
        return _Verbs(_be(who, is_past=is_past), f"allowed to {base}")
    if is_past:
        finite = {"want to": "wanted to", "have to": "had to"}[modal]
        return _Verbs("did", f"{modal} {base}", f"{finite} {base}")
    finite = present(modal) if _is_third(who) else modal
    return _Verbs(_do(who), f"{modal} {base}", f"{finite} {base}")


def _is_third(who: Agreement) -> bool:
    return who.person == 3 and not who.plural


def _do(who: Agreement) -> str:
    return "does" if _is_third(who) else "do"


def _have(who: Agreement) -> str:
    return "has" if _is_third(who) else "have"


def _be(who: Agreement, *, is_past: bool) -> str:
    if who.plural:
        return "were" if is_past else "are"
    if is_past:
        return "was"
    return "am" if who.person == 1 else "is"


def statement(
    clause: Clause,
    *,
    is_simple: bool = False,
    perfect_is_past: bool = False,
) -> str:
    """A clause in statement order; ``is_simple`` keeps the present from being progressive."""
    assert clause.subject is not None
    who = agreement(clause.subject)
    verbs = _verbs(clause, who, is_simple=is_simple, perfect_is_past=perfect_is_past)
    subject = nominal(clause.subject, is_subject=True)
    adverbs = _adverbs(clause)
    is_denied = clause.is_negated or clause.phase == "not yet"
    if verbs.short and not is_denied:
        head = [subject, *adverbs, verbs.short]
    else:
        denial = "not" if is_denied else ""
        auxiliary = "cannot" if (verbs.auxiliary, denial) == ("can", "not") else verbs.auxiliary
        head = [subject, auxiliary, denial if auxiliary != "cannot" else "", *adverbs, verbs.rest]
    if clause.time is not None and clause.time.is_first:
        return _join(f"{time(clause.time)},", *head, *_tail(replace(clause, time=None), who))
    return _join(*head, *_tail(clause, who))


def question(clause: Clause, *, opener: str = "", is_simple: bool = False) -> str:
    """A question, with *do* where there is no other auxiliary; the German perfect is its past."""
    assert clause.subject is not None
    who = agreement(clause.subject)
    verbs = _verbs(clause, who, is_simple=is_simple, perfect_is_past=True)
    subject = nominal(clause.subject, is_subject=True)
    head = [opener, verbs.auxiliary, subject, *_adverbs(clause), verbs.rest]
    return _join(*head, *_tail(clause, who))


def _adverbs(clause: Clause) -> list[str]:
    """The adverbs that stand before the main verb."""
    adverbs = ["already"] if clause.phase == "already" else []
    if clause.often is not None and " " not in clause.often.en:
        adverbs.append(clause.often.en)
    return adverbs


def _object(clause: Clause, who: Agreement) -> str:
    """The direct object with the particle of the verb: *pick up the car*, *pick me up*."""
    verb, direct = clause.verb, clause.direct
    if direct is None:
        return verb.particle
    text = nominal(direct, who)
    if isinstance(direct, Pronoun):
        return _join(verb.en_preposition, text, verb.particle)
    is_denied = clause.is_negated or clause.phase == "not yet"
    has_any = is_denied and isinstance(direct, NounPhrase) and direct.determiner == ""
    return _join(verb.particle, verb.en_preposition, "any" if has_any else "", text)


def _tail(clause: Clause, who: Agreement) -> list[str]:
    """Everything after the verb."""
    parts = [nominal(clause.indirect, who)] if clause.indirect is not None else []
    parts.append(_object(clause, who))
    if clause.complement is not None:
        parts.append(clause.complement.en)
    if clause.place is not None:
        parts.append("in " + noun_phrase(clause.place))
    if clause.often is not None and " " in clause.often.en:
        parts.append(clause.often.en)
    if clause.time is not None:
        parts.append(time(clause.time))
    if clause.phase == "not yet":
        parts.append("yet")
    return parts


def time(when: Time) -> str:
    """When: the time of day before the day."""
    parts = []
    if when.clock is not None:
        parts.append(f"at {clock(when.clock)}")
    if when.day is not None:
        parts.append(f"on {date(when.day)}" if isinstance(when.day, Date) else when.day.en)
    return " ".join(parts)


def date(day: Date) -> str:
    """*the third of May nineteen ninety*."""
    text = f"the {ordinal(day.day, 'en')} of {MONTHS[day.month]}"
    return f"{text} {year(day.year, 'en')}" if day.year else text


def clock(at: Clock) -> str:
    """A time of day as it is said: *half past three*, *a quarter to four*, *three o'clock*."""
    hour, following = words(at.hour, "en"), words(at.hour % 12 + 1, "en")
    if at.minute == 0:
        return f"{hour} o'clock"
    if at.minute in (25, 35) or at.minute % 5:
        return f"{hour} {words(at.minute, 'en')}"
    if at.minute == 30:
        return f"half past {hour}"
    if at.minute in (15, 45):
        return f"a quarter past {hour}" if at.minute == 15 else f"a quarter to {following}"
    if at.minute < 30:
        return f"{words(at.minute, 'en')} past {hour}"
    return f"{words(60 - at.minute, 'en')} to {following}"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
