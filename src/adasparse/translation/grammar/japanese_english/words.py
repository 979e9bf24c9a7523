"""The words of the Japanese-English grammar."""

from dataclasses import dataclass

from adasparse.translation.grammar import english
from adasparse.translation.grammar.meaning import Verb, english_verb

__all__ = [
    "ADJECTIVES",
    "CITIES",
    "COUNTERS",
    "DRINKS",
    "NOUNS",
    "PEOPLE",
    "PLACES",
    "QUALITIES",
    "TELLERS",
    "VEHICLES",
    "VERBS",
    "Adjective",
    "JapaneseVerb",
    "Noun",
    "Person",
]


@dataclass(frozen=True)
class Noun:
    """A noun; its kind decides how it is counted."""

    ja: str
    en: str
    en_plural: str
    kind: str


@dataclass(frozen=True)
class Adjective:
    """An adjective before a noun, and as predicate: is, is not, was, was not."""

    before: str
    predicates: tuple[str, str, str, str]
    en: str


@dataclass(frozen=True)
class JapaneseVerb:
    """A verb: before *masu*, *te*, *ta*, dictionary form, before *nai*."""

    forms: tuple[str, str, str, str, str]
    en: Verb
    kinds: tuple[str, ...]
    has_place: bool = False
    drinks: bool = False

    @property
    def is_bulk(self) -> bool:
        """Whether it goes with large numbers of things."""
        return self.en.en[0] in ("buy", "sell")


@dataclass(frozen=True)
class Person:
    """A person, as English subject and object."""

    ja: str
    en: tuple[str, str]
    person: int = 3


#: The counter of each kind: volumes, machines, flat, long, small animals, pieces, legs, mails.
COUNTERS = {
    "book": "冊",
    "vehicle": "台",
    "machine": "台",
    "cloth": "枚",
    "ticket": "枚",
    "long": "本",
    "animal": "匹",
    "food": "個",
    "furniture": "脚",
    "letter": "通",
}
NOUN_TABLE = {
    "book": "本 book; 辞書 dictionary; 雑誌 magazine",
    "vehicle": "車 car; 自転車 bicycle",
    "machine": "カメラ camera; 冷蔵庫 refrigerator",
    "cloth": "シャツ shirt; タオル towel",
    "ticket": "切符 ticket",
    "long": "傘 umbrella; 鉛筆 pencil; ネクタイ necktie",
    "animal": "犬 dog; 猫 cat",
    "food": "りんご apple; 卵 egg; みかん tangerine; トマト tomato tomatoes",
    "furniture": "椅子 chair",
    "letter": "手紙 letter",
}
QUALITIES = {
    "book": ["new", "old", "expensive", "cheap", "interesting", "heavy"],
    "vehicle": [
        "red",
        "blue",
        "white",
        "black",
        "big",
        "small",
        "new",
        "old",
        "expensive",
        "cheap",
    ],
    "machine": ["white", "black", "big", "small", "new", "old", "expensive", "cheap"],
    "cloth": ["red", "blue", "white", "black", "new", "old", "cheap"],
    "ticket": ["expensive", "cheap"],
    "long": ["red", "blue", "white", "black", "new", "old", "expensive", "long"],
    "animal": ["white", "black", "big", "small"],
    "food": ["big", "small", "expensive", "cheap", "delicious"],
    "furniture": [
        "red",
        "blue",
        "white",
        "black",
        "big",
        "small",
        "new",
        "old",
        "expensive",
        "cheap",
        "heavy",
    ],
    "letter": ["long", "short"],
}
#: Adjectives in *i*, without the *i*.
ADJECTIVE_TABLE = (
    "赤 red; 青 blue; 白 white; 黒 black; 大き big; 小さ small; 新し new; 古 old; 高 expensive;"
    "安 cheap; 面白 interesting; 重 heavy; 長 long; 短 short; おいし delicious"
)
PEOPLE = (
    Person("花子さん", ("Hanako", "Hanako")),
    Person("健さん", ("Ken", "Ken")),
    Person("太郎さん", ("Taro", "Taro")),
    Person("由美さん", ("Yumi", "Yumi")),
    Person("先生", ("the teacher", "the teacher")),
    Person("学生", ("the student", "the student")),
    Person("母", ("my mother", "my mother")),
    Person("父", ("my father", "my father")),
    Person("彼", ("he", "him")),
    Person("彼女", ("she", "her")),
    Person("私", ("I", "me"), person=1),
)
#: Those who tell what the others did.
TELLERS = (
    Person("明さん", ("Akira", "Akira")),
    Person("恵子さん", ("Keiko", "Keiko")),
    Person("直美さん", ("Naomi", "Naomi")),
)
PLACES = (
    ("図書館で", "in the library"),
    ("庭で", "in the garden"),
    ("台所で", "in the kitchen"),
    ("公園で", "in the park"),
    ("教室で", "in the classroom"),
)
CITIES = (
    ("東京", "Tokyo"),
    ("京都", "Kyoto"),
    ("大阪", "Osaka"),
    ("名古屋", "Nagoya"),
    ("札幌", "Sapporo"),
)
VEHICLES = (
    ("電車で", "by train"),
    ("バスで", "by bus"),
    ("車で", "by car"),
    ("飛行機で", "by plane"),
)
DRINKS = tuple(
    Noun(ja, en, "", "drink")
    for ja, en in (("コーヒー", "coffee"), ("お茶", "tea"), ("水", "water"), ("牛乳", "milk"))
)


def _noun(row: str, kind: str) -> Noun:
    ja, en, *irregular = row.split()
    return Noun(ja, en, irregular[0] if irregular else english.plural(en), kind)


def _adjective(row: str) -> Adjective:
    stem, en = row.split()
    predicates = (
        f"{stem}いです",
        f"{stem}くないです",
        f"{stem}かったです",
        f"{stem}くなかったです",
    )
    return Adjective(f"{stem}い", predicates, en)


def _verb(
    japanese: str, other: str, kinds: str = "", *, has_place: bool = False, drinks: bool = False
) -> JapaneseVerb:
    before_masu, te, ta, dictionary, before_nai = japanese.split()
    return JapaneseVerb(
        (before_masu, te, ta, dictionary, before_nai),
        english_verb(other),
        tuple(kinds.split()),
        has_place,
        drinks,
    )


NOUNS = {kind: [_noun(row, kind) for row in rows.split(";")] for kind, rows in NOUN_TABLE.items()}
ADJECTIVES = {entry.en: entry for entry in map(_adjective, ADJECTIVE_TABLE.split(";"))}
VERBS = (
    _verb(
        "買い 買って 買った 買う 買わ",
        "buy bought bought buying",
        "book vehicle machine cloth ticket long food furniture",
    ),
    _verb(
        "売り 売って 売った 売る 売ら",
        "sell sold sold selling",
        "book vehicle machine cloth ticket long food furniture",
    ),
    _verb(
        "探し 探して 探した 探す 探さ",
        "look_for looked_for looked_for looking_for",
        "book cloth ticket long animal",
    ),
    _verb("読み 読んで 読んだ 読む 読ま", "read read read reading", "book letter", has_place=True),
    _verb("書き 書いて 書いた 書く 書か", "write wrote written writing", "letter", has_place=True),
    _verb("食べ 食べて 食べた 食べる 食べ", "eat ate eaten eating", "food", has_place=True),
    _verb(
        "飲み 飲んで 飲んだ 飲む 飲ま", "drink drank drunk drinking", has_place=True, drinks=True
    ),
    _verb("洗い 洗って 洗った 洗う 洗わ", "wash washed washed washing", "vehicle cloth food"),
    _verb(
        "借り 借りて 借りた 借りる 借り", "borrow borrowed borrowed borrowing", "book vehicle long"
    ),
)
