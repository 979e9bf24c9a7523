"""The words of the Romanian-English grammar."""

from dataclasses import dataclass

from adasparse.translation.grammar import english
from adasparse.translation.grammar.meaning import Verb, english_verb

__all__ = [
    "ADJECTIVES",
    "NAMES",
    "NOUNS",
    "PLACES",
    "PRONOUNS",
    "QUALITIES",
    "TELLERS",
    "VERBS",
    "Adjective",
    "Noun",
    "Person",
    "RomanianVerb",
    "definite",
]


@dataclass(frozen=True)
class Noun:
    """A noun; neuters are masculine in the singular and feminine in the plural."""

    singular: str
    gender: str
    plural: str
    en: str
    en_plural: str
    kind: str


@dataclass(frozen=True)
class Adjective:
    """An adjective: masculine and feminine singular, masculine and feminine plural."""

    forms: tuple[str, str, str, str]
    en: str

    def form(self, gender: str, *, is_plural: bool) -> str:
        """The form that agrees."""
        is_feminine = gender == "f" or (gender == "n" and is_plural)
        return self.forms[2 * is_plural + is_feminine]


@dataclass(frozen=True)
class RomanianVerb:
    """A verb: first and third person singular, then plural; subjunctive, participle, infinitive."""

    present: tuple[str, str, str, str]
    subjunctive: str
    participle: str
    infinitive: str
    en: Verb
    kinds: tuple[str, ...]

    @property
    def is_bulk(self) -> bool:
        """Whether it goes with large numbers of things."""
        return self.en.en[0] in ("buy", "sell", "order")


@dataclass(frozen=True)
class Person:
    """A name, two names or a pronoun, as English subject and object."""

    ro: str
    en: tuple[str, str]
    person: int = 3
    is_plural: bool = False


def definite(noun: Noun, *, is_plural: bool) -> str:
    """The noun with its article at the end: *mașina*, *cartea*, *câinele*, *merele*."""
    if is_plural:
        return noun.plural + ("i" if noun.gender == "m" else "le")
    word = noun.singular
    if noun.gender == "f":
        return (word[:-1] if word.endswith(("ă", "ie")) else word) + "a"
    return word + ("le" if word.endswith("e") else "l" if word.endswith("u") else "ul")


#: Singular, gender, plural = English singular, and plural if irregular.
NOUN_TABLE = {
    "person": "profesor m profesori = teacher; student m studenți = student; vecin m vecini ="
    " neighbor; băiat m băieți = boy; fată f fete = girl; femeie f femei = woman women;"
    " medic m medici = doctor; bunic m bunici = grandfather",
    "animal": "câine m câini = dog; pisică f pisici = cat; cal m cai = horse",
    "food": "măr n mere = apple; pară f pere = pear; ou n ouă = egg; portocală f portocale ="
    " orange; cartof m cartofi = potato potatoes",
    "baked": "prăjitură f prăjituri = cake; chiflă f chifle = roll",
    "vehicle": "mașină f mașini = car; bicicletă f biciclete = bicycle; motocicletă f motociclete"
    " = motorcycle",
    "furniture": "scaun n scaune = chair; masă f mese = table; lampă f lămpi = lamp;"
    " covor n covoare = carpet; oglindă f oglinzi = mirror",
    "clothing": "pantof m pantofi = shoe; palton n paltoane = coat; pălărie f pălării = hat;"
    " cămașă f cămăși = shirt",
    "text": "carte f cărți = book; ziar n ziare = newspaper; dicționar n dicționare = dictionary",
    "writing": "scrisoare f scrisori = letter; roman n romane = novel; poezie f poezii = poem",
    "carried": "umbrelă f umbrele = umbrella; valiză f valize = suitcase; ceas n ceasuri = watch",
}
ADJECTIVE_TABLE = (
    "roșu roșie roșii roșii = red; negru neagră negri negre = black; alb albă albi albe = white;"
    "verde verde verzi verzi = green; albastru albastră albaștri albastre = blue;"
    "galben galbenă galbeni galbene = yellow; mare mare mari mari = big;"
    "mic mică mici mici = small; nou nouă noi noi = new; vechi veche vechi vechi = old;"
    "scump scumpă scumpi scumpe = expensive;"
    "frumos frumoasă frumoși frumoase = beautiful; ieftin ieftină ieftini ieftine = cheap;"
    "proaspăt proaspătă proaspeți proaspete = fresh; interesant interesantă interesanți interesante"
    " = interesting; lung lungă lungi lungi = long; scurt scurtă scurți scurte = short;"
    "greu grea grei grele = heavy; obosit obosită obosiți obosite = tired;"
    "fericit fericită fericiți fericite = happy; bolnav bolnavă bolnavi bolnave = sick"
)
COLORS = "red black white green blue yellow"
QUALITIES = {
    "animal": ["black", "white", "big", "small", "beautiful"],
    "food": ["big", "small", "fresh", "cheap"],
    "baked": ["big", "small", "fresh"],
    "vehicle": f"{COLORS} big small new old expensive cheap beautiful".split(),
    "furniture": f"{COLORS} big small new old expensive cheap beautiful heavy".split(),
    "clothing": f"{COLORS} new old expensive cheap beautiful".split(),
    "text": ["new", "old", "expensive", "cheap", "interesting", "heavy"],
    "writing": ["new", "old", "interesting", "long", "short", "beautiful"],
    "carried": f"{COLORS} big small new old beautiful".split(),
}
#: First and third person singular, then plural; subjunctive, participle, infinitive = English.
VERB_TABLE = (
    (
        "cumpăr cumpără cumpărăm cumpără cumpere cumpărat cumpăra",
        "buy bought bought buying",
        "vehicle furniture clothing text carried food",
    ),
    (
        "vând vinde vindem vând vândă vândut vinde",
        "sell sold sold selling",
        "vehicle furniture clothing text",
    ),
    (
        "comand comandă comandăm comandă comande comandat comanda",
        "order ordered ordered ordering",
        "furniture clothing text baked",
    ),
    (
        "caut caută căutăm caută caute căutat căuta",
        "look_for looked_for looked_for looking_for",
        "carried text clothing",
    ),
    ("citesc citește citim citesc citească citit citi", "read read read reading", "text writing"),
    ("scriu scrie scriem scriu scrie scris scrie", "write wrote written writing", "writing"),
    ("mănânc mănâncă mâncăm mănâncă mănânce mâncat mânca", "eat ate eaten eating", "food baked"),
    (
        "repar repară reparăm repară repare reparat repara",
        "repair repaired repaired repairing",
        "vehicle furniture",
    ),
    (
        "spăl spală spălăm spală spele spălat spăla",
        "wash washed washed washing",
        "vehicle clothing food",
    ),
    (
        "aduc aduce aducem aduc aducă adus aduce",
        "bring brought brought bringing",
        "food baked text furniture carried",
    ),
    (
        "fotografiez fotografiază fotografiem fotografiază fotografieze fotografiat fotografia",
        "photograph photographed photographed photographing",
        "animal vehicle",
    ),
)

NAMES = tuple(
    Person(name, (name, name)) for name in ["Ana", "Maria", "Elena", "Andrei", "Mihai", "Radu"]
) + tuple(
    Person(f"{first} și {second}", (f"{first} and {second}",) * 2, is_plural=True)
    for first in ("Ana", "Maria", "Elena")
    for second in ("Andrei", "Mihai", "Radu")
)
#: Those who tell what the others do.
TELLERS = tuple(Person(name, (name, name)) for name in ["Gabriela", "Ioana", "Dan", "Victor"])
PRONOUNS = (
    Person("eu", ("I", "me"), person=1),
    Person("el", ("he", "him")),
    Person("ea", ("she", "her")),
    Person("noi", ("we", "us"), person=1, is_plural=True),
)
#: Where: a bare noun after *în* is definite in English.
PLACES = (
    ("în grădină", "in the garden"),
    ("în bucătărie", "in the kitchen"),
    ("în birou", "in the office"),
    ("în bibliotecă", "in the library"),
    ("în parc", "in the park"),
    ("în hotel", "in the hotel"),
)


def _noun(row: str, kind: str) -> Noun:
    romanian, _, other = row.partition("=")
    singular, gender, plural = romanian.split()
    en, *irregular = other.split()
    return Noun(
        singular, gender, plural, en, irregular[0] if irregular else english.plural(en), kind
    )


def _adjective(row: str) -> Adjective:
    forms, _, en = row.partition("=")
    first, second, third, fourth = forms.split()
    return Adjective((first, second, third, fourth), en.strip())


def _verb(romanian: str, other: str, kinds: str) -> RomanianVerb:
    first, third, we, they, subjunctive, participle, infinitive = romanian.split()
    return RomanianVerb(
        (first, third, we, they),
        subjunctive,
        participle,
        infinitive,
        english_verb(other),
        tuple(kinds.split()),
    )


NOUNS = {kind: [_noun(row, kind) for row in rows.split(";")] for kind, rows in NOUN_TABLE.items()}
ADJECTIVES = {entry.en: entry for entry in map(_adjective, ADJECTIVE_TABLE.split(";"))}
VERBS = tuple(_verb(*row) for row in VERB_TABLE)
