"""Romanian and Japanese forms against tables written out by hand."""

import pytest

from adasparse.translation.grammar import english
from adasparse.translation.grammar.japanese_english import actions as japanese
from adasparse.translation.grammar.japanese_english import facts as japanese_facts
from adasparse.translation.grammar.japanese_english import words as japanese_words
from adasparse.translation.grammar.meaning import Agreement, Clock, Date
from adasparse.translation.grammar.numbers import romanian_count
from adasparse.translation.grammar.romanian_english import actions as romanian
from adasparse.translation.grammar.romanian_english import facts as romanian_facts
from adasparse.translation.grammar.romanian_english.words import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    definite,
)

ROMANIAN = {noun.singular: noun for nouns in NOUNS.values() for noun in nouns}
JAPANESE = {noun.ja: noun for nouns in japanese_words.NOUNS.values() for noun in nouns}


@pytest.mark.parametrize(
    ("number", "masculine", "feminine"),
    [
        (2, "doi", "două"),
        (12, "doisprezece", "douăsprezece"),
        (19, "nouăsprezece", "nouăsprezece"),
        (20, "douăzeci de", "douăzeci de"),
        (21, "douăzeci și unu de", "douăzeci și una de"),
        (32, "treizeci și doi de", "treizeci și două de"),
        (100, "o sută de", "o sută de"),
        (112, "o sută doisprezece", "o sută douăsprezece"),
        (122, "o sută douăzeci și doi de", "o sută douăzeci și două de"),
        (1000, "o mie de", "o mie de"),
        (2002, "două mii doi", "două mii două"),
    ],
)
def test_romanian_numbers_agree(number, masculine, feminine):
    assert romanian_count(number, feminine=False) == masculine
    assert romanian_count(number, feminine=True) == feminine


@pytest.mark.parametrize(
    ("noun", "singular", "plural"),
    [
        ("mașină", "mașina", "mașinile"),
        ("carte", "cartea", "cărțile"),
        ("femeie", "femeia", "femeile"),
        ("pălărie", "pălăria", "pălăriile"),
        ("măr", "mărul", "merele"),
        ("ou", "oul", "ouăle"),
        ("câine", "câinele", "câinii"),
        ("băiat", "băiatul", "băieții"),
        ("cal", "calul", "caii"),
    ],
)
def test_romanian_articles_stand_at_the_end(noun, singular, plural):
    assert definite(ROMANIAN[noun], is_plural=False) == singular
    assert definite(ROMANIAN[noun], is_plural=True) == plural


@pytest.mark.parametrize(
    ("noun", "determiner", "number", "adjective", "ro", "en"),
    [
        ("mașină", "count", 23, "red", "douăzeci și trei de mașini roșii", "twenty-three red cars"),
        ("mașină", "a", 1, "black", "o mașină neagră", "a black car"),
        ("măr", "a", 1, "fresh", "un măr proaspăt", "a fresh apple"),
        ("măr", "count", 2, "fresh", "două mere proaspete", "two fresh apples"),
        ("pantof", "count", 2, "blue", "doi pantofi albaștri", "two blue shoes"),
        ("scaun", "my", 0, "white", "scaunele mele albe", "my white chairs"),
        ("pantof", "my", 1, "new", "pantoful meu nou", "my new shoe"),
        ("umbrelă", "the", 1, "green", "umbrela verde", "the green umbrella"),
        ("portocală", "a", 1, None, "o portocală", "an orange"),
    ],
)
def test_romanian_noun_phrases(noun, determiner, number, adjective, ro, en):
    chosen = ADJECTIVES[adjective] if adjective else None
    said = romanian.noun_phrase(ROMANIAN[noun], determiner, number, chosen)
    assert (said.ro, said.en.en[0]) == (ro, en)


@pytest.mark.parametrize(
    ("tense", "modal", "forms"),
    [
        ("present", "", "vând, vinde, vindem, vând"),
        ("past", "", "am vândut, a vândut, am vândut, au vândut"),
        ("future", "", "voi vinde, va vinde, vom vinde, vor vinde"),
        (
            "present",
            "want to",
            "vreau să vând, vrea să vândă, vrem să vindem, vor să vândă",
        ),
    ],
)
def test_romanian_verbs(tense, modal, forms):
    verb = next(verb for verb in VERBS if verb.infinitive == "vinde")
    people = [Agreement(1), Agreement(3), Agreement(1, True), Agreement(3, True)]
    assert ", ".join(romanian.conjugate(verb, tense, modal, who) for who in people) == forms


def test_romanian_times_and_dates():
    clock, date = romanian_facts.clock, romanian_facts.date
    assert clock(Clock(3, 30)) == "ora trei și jumătate"
    assert clock(Clock(12, 45)) == "ora unu fără un sfert"
    assert clock(Clock(2, 0)) == "ora două"
    assert clock(Clock(11, 40)) == "ora douăsprezece fără douăzeci"
    assert date(Date(1, 4)) == "întâi mai"
    assert date(Date(22, 0, 1990)) == "douăzeci și doi ianuarie o mie nouă sute nouăzeci"


@pytest.mark.parametrize(
    ("noun", "count", "adjective", "ja", "en"),
    [
        ("本", 23, "new", "新しい本を二十三冊", "twenty-three new books"),
        ("車", 1, None, "車を一台", "one car"),
        ("シャツ", 3, "white", "白いシャツを三枚", "three white shirts"),
        ("傘", 10, None, "傘を十本", "ten umbrellas"),
        ("猫", 2, "big", "大きい猫を二匹", "two big cats"),
        ("りんご", 100, None, "りんごを百個", "one hundred apples"),
        ("手紙", 4, "long", "長い手紙を四通", "four long letters"),
    ],
)
def test_japanese_counters(noun, count, adjective, ja, en):
    chosen = japanese_words.ADJECTIVES[adjective] if adjective else None
    thing = japanese.counted(JAPANESE[noun], count, chosen)
    assert (thing.japanese("を"), thing.english().en[0]) == (ja, en)


def test_japanese_times_and_dates():
    assert japanese_facts.clock(Clock(3, 30)) == "三時半"
    assert japanese_facts.clock(Clock(3, 0)) == "三時"
    assert japanese_facts.clock(Clock(10, 45)) == "十時四十五分"
    assert japanese_facts.date(Date(3, 4, 1999)) == "千九百九十九年五月三日"


@pytest.mark.parametrize(
    ("text", "verb_ja", "en"),
    [
        ("ました", "読みました", "Hanako read three books"),
        ("ませんでした", "読みませんでした", "Hanako did not read three books"),
        ("います", "読んでいます", "Hanako is reading three books"),
        ("ことができます", "読むことができます", "Hanako can read three books"),
        ("なければなりません", "読まなければなりません", "Hanako has to read three books"),
    ],
)
def test_japanese_verbs_come_last(text, verb_ja, en):
    verb = next(verb for verb in japanese_words.VERBS if verb.en.en[0] == "read")
    ending = next(ending for ending in japanese.ENDINGS if ending.text == text)
    books = japanese.counted(JAPANESE["本"], 3, None)
    hanako = japanese_words.PEOPLE[0]
    deed = japanese.Deed(hanako, verb, books, ("", ""), ending, None)
    assert (deed.japanese(), english.statement(deed.clause())) == (
        f"花子さんは本を三冊{verb_ja}",
        en,
    )
