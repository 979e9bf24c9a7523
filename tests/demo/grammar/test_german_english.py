"""German forms against tables written out by hand."""

import re
from random import Random

import pytest

from adasparse.demo.grammar import english, german
from adasparse.demo.grammar.german_english import sentences
from adasparse.demo.grammar.german_english.nouns import ADJECTIVES, CASTS, NOUNS, PRONOUNS
from adasparse.demo.grammar.german_english.verbs import (
    BE,
    GIVING,
    MODALS,
    PAST_MODALS,
    TIMETABLE,
    TRANSITIVE,
    TRAVEL,
)
from adasparse.demo.grammar.meaning import (
    Agreement,
    Clause,
    Clock,
    Date,
    NounPhrase,
    Phrase,
    Time,
)

WORDS = {noun.de: noun for nouns in NOUNS.values() for noun in nouns}
VERBS = {verb.prefix + verb.de[0]: verb for verb in (*TRANSITIVE, *GIVING, *TRAVEL, *TIMETABLE)}
NAMES = {name.de: name for cast in CASTS.values() for name in cast}
ANNA, THOMAS = NAMES["Anna"], NAMES["Thomas"]
CASES = ("nom", "acc", "dat")


def thing(noun, determiner="the", *adjectives, **options):
    chosen = tuple(ADJECTIVES[name] for name in adjectives)
    return NounPhrase(WORDS[noun], determiner, adjectives=chosen, **options)


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        (thing("Hut", "the", "alt"), "der alte Hut, den alten Hut, dem alten Hut"),
        (thing("Tür", "the", "alt"), "die alte Tür, die alte Tür, der alten Tür"),
        (thing("Auto", "the", "rot"), "das rote Auto, das rote Auto, dem roten Auto"),
        (thing("Hut", "a", "alt"), "ein alter Hut, einen alten Hut, einem alten Hut"),
        (thing("Tür", "a", "alt"), "eine alte Tür, eine alte Tür, einer alten Tür"),
        (thing("Auto", "a", "rot"), "ein rotes Auto, ein rotes Auto, einem roten Auto"),
        (thing("Kaffee", "", "kalt"), "kalter Kaffee, kalten Kaffee, kaltem Kaffee"),
        (thing("Milch", "", "kalt"), "kalte Milch, kalte Milch, kalter Milch"),
        (thing("Wasser", "", "kalt"), "kaltes Wasser, kaltes Wasser, kaltem Wasser"),
        (
            thing("Hut", "the", "teuer", is_plural=True),
            "die teuren Hüte, die teuren Hüte, den teuren Hüten",
        ),
        (thing("Auto", "", "rot", is_plural=True), "rote Autos, rote Autos, roten Autos"),
        (
            thing("Auto", "", "rot", is_plural=True, count=23),
            "dreiundzwanzig rote Autos, dreiundzwanzig rote Autos, dreiundzwanzig roten Autos",
        ),
        (
            thing("Haus", "no", "dunkel", is_plural=True),
            "keine dunklen Häuser, keine dunklen Häuser, keinen dunklen Häusern",
        ),
        (thing("Sohn", "our"), "unser Sohn, unseren Sohn, unserem Sohn"),
        (thing("Tante", "my"), "meine Tante, meine Tante, meiner Tante"),
        (thing("Buch", "this", "neu"), "dieses neue Buch, dieses neue Buch, diesem neuen Buch"),
        (thing("Mantel", "every"), "jeder Mantel, jeden Mantel, jedem Mantel"),
        (thing("Mantel", "which"), "welcher Mantel, welchen Mantel, welchem Mantel"),
        (
            thing("Kind", "many", "klein", is_plural=True),
            "viele kleine Kinder, viele kleine Kinder, vielen kleinen Kindern",
        ),
        (
            thing("Kind", "all", "klein", is_plural=True),
            "alle kleinen Kinder, alle kleinen Kinder, allen kleinen Kindern",
        ),
        (thing("Junge"), "der Junge, den Jungen, dem Jungen"),
        (thing("Student", "a"), "ein Student, einen Studenten, einem Studenten"),
        (thing("Nachbar", "the", is_plural=True), "die Nachbarn, die Nachbarn, den Nachbarn"),
        (thing("Lehrer", "the", is_plural=True), "die Lehrer, die Lehrer, den Lehrern"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_articles_adjectives_and_nouns_agree(phrase, expected):
    assert ", ".join(german.noun_phrase(phrase, case) for case in CASES) == expected


@pytest.mark.parametrize(
    ("owner", "de", "en"),
    [
        (Agreement(gender="m"), "seinen neuen Hut", "his new hat"),
        (Agreement(gender="f"), "ihren neuen Hut", "her new hat"),
        (Agreement(plural=True), "ihren neuen Hut", "their new hat"),
    ],
)
def test_what_is_owned_follows_the_owner(owner, de, en):
    phrase = thing("Hut", "own", "neu")
    assert german.noun_phrase(phrase, "acc", owner) == de
    assert english.noun_phrase(phrase, owner) == en


def test_mister_is_declined():
    assert [german.nominal(NAMES["Herr Wagner"], case) for case in CASES] == [
        "Herr Wagner",
        "Herrn Wagner",
        "Herrn Wagner",
    ]


ME, WE, HE, SHE = PRONOUNS
CAR, KEY = thing("Auto"), thing("Schlüssel", "a")
YESTERDAY = Phrase("gestern", "yesterday")
CAN, MUST, WANT, SHOULD, MAY, WOULD = MODALS
COULD, HAD_TO, WANTED = PAST_MODALS


@pytest.mark.parametrize(
    ("clause", "de", "en"),
    [
        (Clause(VERBS["kaufen"], ANNA, CAR), "Anna kauft das Auto", "Anna is buying the car"),
        (Clause(VERBS["kaufen"], ME, CAR), "ich kaufe das Auto", "I am buying the car"),
        (
            Clause(VERBS["kaufen"], WE, CAR, tense="past", is_negated=True),
            "wir kauften das Auto nicht",
            "we did not buy the car",
        ),
        (
            Clause(VERBS["verlieren"], SHE, KEY, tense="perfect", is_negated=True),
            "sie hat keinen Schlüssel verloren",
            "she has not lost a key",
        ),
        (
            Clause(VERBS["finden"], HE, CAR, tense="perfect", phase="not yet"),
            "er hat das Auto noch nicht gefunden",
            "he has not found the car yet",
        ),
        (
            Clause(VERBS["finden"], HE, KEY, tense="perfect", phase="already"),
            "er hat schon einen Schlüssel gefunden",
            "he has already found a key",
        ),
        (
            Clause(VERBS["anrufen"], ANNA, NAMES["Herr Wagner"], often=Phrase("oft", "often")),
            "Anna ruft oft Herrn Wagner an",
            "Anna often calls Mr. Wagner",
        ),
        (
            Clause(VERBS["helfen"], THOMAS, SHE, modal=CAN, is_negated=True),
            "Thomas kann ihr nicht helfen",
            "Thomas cannot help her",
        ),
        (
            Clause(VERBS["abholen"], THOMAS, ME, modal=WANT),
            "Thomas will mich abholen",
            "Thomas wants to pick me up",
        ),
        (
            Clause(VERBS["abholen"], THOMAS, CAR, tense="perfect"),
            "Thomas hat das Auto abgeholt",
            "Thomas has picked up the car",
        ),
        (
            Clause(VERBS["mieten"], WE, CAR, modal=MUST, is_negated=True),
            "wir müssen das Auto nicht mieten",
            "we do not have to rent the car",
        ),
        (
            Clause(VERBS["waschen"], HE, thing("Hut"), tense="past", modal=WANTED),
            "er wollte den Hut waschen",
            "he wanted to wash the hat",
        ),
        (
            Clause(VERBS["waschen"], HE, thing("Hut"), modal=MAY, is_negated=True),
            "er darf den Hut nicht waschen",
            "he is not allowed to wash the hat",
        ),
        (
            Clause(VERBS["geben"], ANNA, KEY, thing("Junge"), tense="future"),
            "Anna wird dem Jungen einen Schlüssel geben",
            "Anna will give the boy a key",
        ),
        (
            Clause(VERBS["warten"], ME, thing("Zug"), tense="past", is_negated=True),
            "ich wartete nicht auf den Zug",
            "I did not wait for the train",
        ),
        (
            Clause(
                VERBS["fahren"],
                SHE,
                complement=Phrase("nach Rom", "to Rome"),
                tense="perfect",
            ),
            "sie ist nach Rom gefahren",
            "she has traveled to Rome",
        ),
        (
            Clause(VERBS["lesen"], ANNA, thing("Buch"), place=thing("Garten"), tense="perfect"),
            "Anna hat im Garten das Buch gelesen",
            "Anna has read the book in the garden",
        ),
        (
            Clause(VERBS["trinken"], WE, thing("Milch", ""), is_negated=True),
            "wir trinken keine Milch",
            "we are not drinking any milk",
        ),
        (
            Clause(VERBS["kaufen"], ANNA, CAR, tense="past", time=Time(YESTERDAY, is_first=True)),
            "gestern kaufte Anna das Auto",
            "yesterday, Anna bought the car",
        ),
        (
            Clause(
                VERBS["ankommen"],
                thing("Zug"),
                time=Time(Phrase("am Montag", "on Monday"), Clock(3, 30)),
            ),
            "der Zug kommt am Montag um halb vier an",
            "the train arrives at half past three on Monday",
        ),
        (
            Clause(BE, CAR, complement=Phrase("rot", "red"), is_negated=True),
            "das Auto ist nicht rot",
            "the car is not red",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_statements(clause, de, en):
    assert (german.statement(clause), english.statement(clause)) == (de, en)


@pytest.mark.parametrize(
    ("clause", "de", "en"),
    [
        (Clause(VERBS["kaufen"], ANNA, CAR, tense="perfect"), "das Auto gekauft hat", "bought"),
        (Clause(VERBS["anrufen"], ANNA, HE), "ihn anruft", "is calling"),
        (Clause(VERBS["anrufen"], ANNA, HE, modal=SHOULD), "ihn anrufen soll", "should call"),
        (Clause(VERBS["anrufen"], ANNA, HE, tense="future"), "ihn anrufen wird", "will call"),
    ],
)
def test_the_verb_comes_last_in_subordinate_clauses(clause, de, en):
    assert german.subordinate(clause, "weil") == f"weil Anna {de}"
    assert f" {en} " in english.statement(clause, perfect_is_past=True)


@pytest.mark.parametrize(
    ("clause", "opener", "de", "en"),
    [
        (
            Clause(VERBS["kaufen"], ANNA, CAR, tense="perfect"),
            ("", ""),
            "hat Anna das Auto gekauft",
            "did Anna buy the car",
        ),
        (
            Clause(VERBS["brauchen"], HE, CAR),
            ("", ""),
            "braucht er das Auto",
            "does he need the car",
        ),
        (
            Clause(VERBS["kaufen"], WE, modal=WOULD),
            ("was", "what"),
            "was möchten wir kaufen",
            "what would we like to buy",
        ),
        (
            Clause(VERBS["suchen"], ANNA),
            ("was", "what"),
            "was sucht Anna",
            "what is Anna looking for",
        ),
        (
            Clause(VERBS["abfahren"], thing("Bus")),
            ("um wie viel Uhr", "what time"),
            "um wie viel Uhr fährt der Bus ab",
            "what time does the bus depart",
        ),
    ],
)
def test_questions(clause, opener, de, en):
    assert german.question(clause, opener=opener[0]) == de
    assert english.question(clause, opener=opener[1]) == en


@pytest.mark.parametrize(
    ("phrase", "de", "en"),
    [
        (
            thing("Koffer", relative=Clause(VERBS["verlieren"], ANNA, tense="perfect")),
            "den Koffer, den Anna verloren hat,",
            "the suitcase that Anna lost",
        ),
        (
            thing("Frau", relative=Clause(VERBS["kaufen"], direct=CAR, tense="perfect")),
            "die Frau, die das Auto gekauft hat,",
            "the woman who bought the car",
        ),
        (
            thing(
                "Kind",
                relative=Clause(VERBS["kaufen"], direct=CAR, tense="perfect"),
                is_plural=True,
            ),
            "die Kinder, die das Auto gekauft haben,",
            "the children who bought the car",
        ),
    ],
)
def test_relative_clauses(phrase, de, en):
    assert german.noun_phrase(phrase, "acc") == de
    assert english.noun_phrase(phrase) == en


@pytest.mark.parametrize(
    ("hour", "minute", "de", "en"),
    [
        (3, 30, "halb vier", "half past three"),
        (12, 30, "halb eins", "half past twelve"),
        (1, 0, "ein Uhr", "one o'clock"),
        (1, 15, "Viertel nach eins", "a quarter past one"),
        (12, 45, "Viertel vor eins", "a quarter to one"),
        (7, 5, "fünf nach sieben", "five past seven"),
        (7, 40, "zwanzig vor acht", "twenty to eight"),
        (1, 13, "ein Uhr dreizehn", "one thirteen"),
        (8, 25, "acht Uhr fünfundzwanzig", "eight twenty-five"),
    ],
)
def test_times_of_day(hour, minute, de, en):
    assert german.clock(Clock(hour, minute)) == de
    assert english.clock(Clock(hour, minute)) == en


def test_dates():
    day = Date(3, 4, 1999)
    assert german.date(day) == "dritten Mai neunzehnhundertneunundneunzig"
    assert english.date(day) == "the third of May nineteen ninety-nine"
    assert german.time(Time(Date(1, 0))) == "am ersten Januar"
    assert german.date(Date(7, 2), case="nom") == "siebte März"


def test_each_word_has_one_translation():
    for pairs in (
        [(noun.de, noun.en) for noun in WORDS.values()],
        [(noun.de_plural, noun.en_plural) for noun in WORDS.values() if not noun.is_mass],
        [(adjective.de, adjective.en) for adjective in ADJECTIVES.values()],
        [(name, verb.en[0]) for name, verb in VERBS.items()],
    ):
        assert len({de for de, _ in pairs}) == len({en for _, en in pairs}) == len(pairs)


GERMAN_NUMBERS = dict(
    zip(
        [
            "eins",
            "zwei",
            "drei",
            "vier",
            "fünf",
            "sechs",
            "sieben",
            "acht",
            "neun",
            "zehn",
            "elf",
            "zwölf",
            "dreizehn",
            "vierzehn",
            "fünfzehn",
            "sechzehn",
            "siebzehn",
            "achtzehn",
            "neunzehn",
            "zwanzig",
            "dreißig",
            "vierzig",
            "fünfzig",
            "sechzig",
            "siebzig",
            "achtzig",
            "neunzig",
            "ein",
        ],
        [*range(1, 20), *range(20, 100, 10), 1],
        strict=True,
    )
)
ENGLISH_NUMBERS = dict(
    zip(
        [
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
            "thirty",
            "forty",
            "fifty",
            "sixty",
            "seventy",
            "eighty",
            "ninety",
        ],
        [*range(1, 20), *range(20, 100, 10)],
        strict=True,
    )
)


def parse_german(word):
    for unit, value in (("tausend", 1000), ("hundert", 100)):
        if unit in word:
            before, after = word.split(unit)
            return parse_german(before) * value + (parse_german(after) if after else 0)
    return sum(GERMAN_NUMBERS[part] for part in word.split("und"))


def parse_english(text):
    total = current = 0
    for word in re.split(r"[ ,-]+", text.replace(" and ", " ")):
        if word == "thousand":
            total, current = current * 1000, 0
        elif word == "hundred":
            current *= 100
        else:
            current += ENGLISH_NUMBERS[word]
    return total + current


def test_number_words_parse_back(german_sentences):
    numbers = []
    for source, target in german_sentences:
        de = re.fullmatch(r".* kostet (\S+) Euro(?: und (\S+) Cent)?\.", source)
        en = re.fullmatch(r".* costs (.+) euros(?: and (.+) cents)?\.", target)
        if de and en:
            assert parse_german(de[1]) == parse_english(en[1])
            assert (de[2] is None) == (en[2] is None)
            assert de[2] is None or parse_german(de[2]) == parse_english(en[2])
            numbers.append(parse_german(de[1]))
    assert len(numbers) > 200 and max(numbers) > 1000 and min(numbers) < 10


def test_the_number_itself_is_the_one_chosen():
    for number in (2, 12, 21, 23, 99, 100, 117, 280, 999, 1000, 1234, 4021, 9999):
        phrase = thing("Auto", "", is_plural=True, count=number)
        assert parse_german(german.noun_phrase(phrase, "nom").removesuffix(" Autos")) == number
        assert parse_english(english.noun_phrase(phrase).removesuffix(" cars")) == number


EVERYTHING = (
    ", weil |, dass |, ob |Wenn |, aber | und |Wer |Was |Wen |Wem |Wann |Warum |Wo |Wie viele "
    "|Wie viel |Welche| kein| nicht | schon | noch | um halb | Viertel vor | als | Euro und "
    "| Cent.| gibt es | wurde am | Jahre alt.|Heute ist der | gehört | ab.| an.| Herrn "
)


def test_it_says_everything_it_should(german_sentences):
    text = "\n".join(source for source, _ in german_sentences)
    for part in EVERYTHING.split("|"):
        assert part in text, part


@pytest.fixture(scope="module")
def german_sentences():
    rng, space = Random(5), sentences()
    return [space.sample(rng) for _ in range(8000)]
