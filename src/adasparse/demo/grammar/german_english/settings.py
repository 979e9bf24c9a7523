"""Tense, mood and time of German-English clauses: what goes with what in both languages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from adasparse.demo.grammar.german_english.phrases import FUTURE_TIMES, NOW, PAST_TIMES
from adasparse.demo.grammar.german_english.verbs import MODALS, PAST_MODALS
from adasparse.demo.grammar.meaning import Clause, Modal, Phrase, Tense, Time
from adasparse.demo.grammar.spaces import Build, OneOf, Space, Union, maybe

__all__ = ["Setting", "settings"]

FREQUENCIES = [
    Phrase("oft", "often"),
    Phrase("immer", "always"),
    Phrase("manchmal", "sometimes"),
    Phrase("nie", "never"),
    Phrase("selten", "rarely"),
    Phrase("jeden Tag", "every day"),
    Phrase("jede Woche", "every week"),
]


BRIEF: tuple[Tense, ...] = ("present", "past", "perfect")


@dataclass(frozen=True)
class Setting:
    """Tense, mood and time of a clause, as its other parts do not see them."""

    tense: Tense = "present"
    modal: Modal | None = None
    time: Time | None = None
    often: Phrase | None = None
    phase: str = ""
    is_negated: bool = False

    def of(self, clause: Clause) -> Clause:
        """The clause in this setting."""
        return replace(clause, **vars(self))


def _told(
    tense: Tense,
    *,
    modals: Sequence[Modal | None] = (None,),
    times: Space[Time | None] | None = None,
    denial: Space[bool] | None = None,
) -> Space[Setting]:
    return Build(
        lambda modal, time, is_negated: Setting(tense, modal, time, is_negated=is_negated),
        OneOf(modals),
        times or OneOf([None]),
        denial or OneOf([False]),
    )


def _moved(times: Space[Time]) -> Space[Time]:
    """The times in their place, or before the rest."""
    first = Build(lambda time: replace(time, is_first=True), times)
    return Union((2, times), (1, first))


@cache
def settings(
    mode: str,
    *,
    can_negate: bool = False,
    can_repeat: bool = False,
    is_sudden: bool = False,
    takes_modal: bool = True,
) -> Space[Setting]:
    """Settings of one kind of clause.

    Args:
        mode: ``statement``, or ``subordinate``, where the time never comes first; ``question`` for
            yes or no, ``asked`` for one that asks for a part; ``condition`` and ``consequence``;
            ``brief`` for one of two joined clauses; ``relative``.
        can_negate: Whether the clause may be denied.
        can_repeat: Whether it may be told as a habit.
        is_sudden: Whether it happens in a moment (to find, to lose): not told of the present.
        takes_modal: Whether one can want, have or be allowed to do it.
    """
    denial: Space[bool] = OneOf([False])
    if can_negate:
        denial = Union((4, denial), (1, OneOf([True])))
    if mode == "condition":
        return _told("present", denial=denial)
    if mode == "consequence":
        return _told("present", modals=MODALS, denial=denial)
    if mode == "brief":
        return Union(*((1, _told(tense, denial=denial)) for tense in BRIEF[is_sudden:]))
    if mode == "relative" or (mode == "asked" and (is_sudden or not takes_modal)):
        return _told("perfect")
    if mode == "asked":
        return Union((2, _told("perfect")), (1, _told("present", modals=MODALS)))
    often: Space[Setting] = Build(lambda often: Setting(often=often), OneOf(FREQUENCIES))
    habit = ((2, often),) if can_repeat else ()
    if mode == "question":
        past, plain, modal = _questioned()
    else:
        past, plain, modal = _stated(denial, can_move=mode == "statement", can_negate=can_negate)
    return past if is_sudden else Union(*plain, *(modal if takes_modal else []), *habit)


Weighted = list[tuple[float, Space[Setting]]]


def _questioned() -> tuple[Space[Setting], Weighted, Weighted]:
    """Settings of a question: of the past, all without a modal verb, and with one."""
    past = _told("perfect", times=maybe(0.4, PAST_TIMES))
    modal = _told("present", modals=MODALS, times=maybe(0.3, FUTURE_TIMES))
    return past, [(6, past), (3, _told("present", times=maybe(0.3, NOW)))], [(5, modal)]


def _stated(
    denial: Space[bool], *, can_move: bool, can_negate: bool
) -> tuple[Space[Setting], Weighted, Weighted]:
    """Settings of a statement: of the past, all without a modal verb, and with one."""
    now, before, later = (
        _moved(times) if can_move else times for times in (NOW, PAST_TIMES, FUTURE_TIMES)
    )
    phases = OneOf(["already", "not yet"] if can_negate else ["already"])
    past: Space[Setting] = Union(
        (4, _told("past", times=maybe(0.6, before), denial=denial)),
        (3, _told("perfect", denial=denial)),
        (1, Build(lambda phase: Setting("perfect", phase=phase), phases)),
    )
    plain: Weighted = [
        (8, past),
        (4, _told("present", times=maybe(0.3, now), denial=denial)),
        (3, _told("future", times=maybe(0.6, later), denial=denial)),
    ]
    modal: Weighted = [
        (5, _told("present", modals=MODALS, times=maybe(0.3, later), denial=denial)),
        (2, _told("past", modals=PAST_MODALS, times=maybe(0.3, before), denial=denial)),
    ]
    return past, plain, modal
