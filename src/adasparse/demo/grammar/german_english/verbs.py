"""Verbs of the German-English grammar, with the kinds of object that make sense of them."""

from typing import Any

from adasparse.demo.grammar.meaning import Modal, Verb

__all__ = [
    "BE",
    "BELONG",
    "COST",
    "GIVING",
    "INTRANSITIVE",
    "LIVE",
    "MODALS",
    "PAST_MODALS",
    "SAYING",
    "TIMETABLE",
    "TRANSITIVE",
    "TRAVEL",
    "WONDERING",
    "verb",
]


def verb(german: str, english: str, kinds: str = "", **options: Any) -> Verb:
    """A verb from its principal parts; ``|`` marks a separable prefix, ``_`` a space.

    German gives infinitive, third person present, past and participle; English gives base, past,
    participle and -ing form. An object phrase is told by ``object="auf acc = for"``.
    """
    infinitive, third, past, participle = german.split()
    prefix, _, infinitive = infinitive.rpartition("|")
    if "object" in options:
        phrase, _, options["en_preposition"] = options.pop("object").partition(" = ")
        options["de_preposition"], options["case"] = phrase.split()
    return Verb(
        de=(infinitive, third, past, participle.removeprefix(prefix)),
        en=tuple(part.replace("_", " ") for part in english.split()),  # type: ignore[arg-type]
        kinds=tuple(kinds.split()),
        prefix=prefix,
        **options,
    )


GOODS = "vehicle furniture clothing device portable text"
PEOPLE = "person young family"

TRANSITIVE = (
    verb(
        "kaufen kauft kaufte gekauft",
        "buy bought bought buying",
        GOODS + " produce staple",
        is_bulk=True,
    ),
    verb(
        "verkaufen verkauft verkaufte verkauft",
        "sell sold sold selling",
        GOODS + " home",
        is_bulk=True,
    ),
    verb(
        "bestellen bestellt bestellte bestellt",
        "order ordered ordered ordering",
        "furniture clothing device text drink dish",
        is_bulk=True,
    ),
    verb(
        "brauchen braucht brauchte gebraucht",
        "need needed needed needing",
        GOODS,
        takes_modal=False,
        is_state=True,
        is_bulk=True,
    ),
    verb(
        "suchen sucht suchte gesucht",
        "look_for looked_for looked_for looking_for",
        "portable pocket",
    ),
    verb(
        "finden findet fand gefunden",
        "find found found finding",
        "portable pocket clothing text",
        is_sudden=True,
        has_place=True,
    ),
    verb(
        "verlieren verliert verlor verloren",
        "lose lost lost losing",
        "portable pocket clothing",
        is_sudden=True,
        has_place=True,
    ),
    verb(
        "vergessen vergisst vergaß vergessen",
        "forget forgot forgotten forgetting",
        "portable pocket clothing text",
        is_sudden=True,
        has_place=True,
    ),
    verb(
        "essen isst aß gegessen",
        "eat ate eaten eating",
        "produce baked staple dish",
        has_place=True,
    ),
    verb("trinken trinkt trank getrunken", "drink drank drunk drinking", "drink", has_place=True),
    verb("kochen kocht kochte gekocht", "cook cooked cooked cooking", "dish", has_place=True),
    verb("backen backt backte gebacken", "bake baked baked baking", "baked", has_place=True),
    verb("lesen liest las gelesen", "read read read reading", "text writing", has_place=True),
    verb(
        "schreiben schreibt schrieb geschrieben",
        "write wrote written writing",
        "writing",
        has_place=True,
    ),
    verb(
        "reparieren repariert reparierte repariert",
        "repair repaired repaired repairing",
        "vehicle device",
    ),
    verb("waschen wäscht wusch gewaschen", "wash washed washed washing", "clothing"),
    verb("putzen putzt putzte geputzt", "clean cleaned cleaned cleaning", "opening vehicle"),
    verb("mieten mietet mietete gemietet", "rent rented rented renting", "vehicle home"),
    verb(
        "sehen sieht sah gesehen",
        "see saw seen seeing",
        "animal vehicle " + PEOPLE,
        is_state=True,
        has_place=True,
    ),
    verb("besuchen besucht besuchte besucht", "visit visited visited visiting", PEOPLE),
    verb("fragen fragt fragte gefragt", "ask asked asked asking", PEOPLE),
    verb("treffen trifft traf getroffen", "meet met met meeting", PEOPLE, has_place=True),
    verb("ein|laden lädt lud eingeladen", "invite invited invited inviting", PEOPLE),
    verb("an|rufen ruft rief angerufen", "call called called calling", PEOPLE),
    verb(
        "ab|holen holt holte abgeholt",
        "pick picked picked picking",
        PEOPLE + " vehicle",
        particle="up",
    ),
    verb("auf|machen macht machte aufgemacht", "open opened opened opening", "opening"),
    verb("zu|machen macht machte zugemacht", "close closed closed closing", "opening"),
    verb(
        "mit|bringen bringt brachte mitgebracht",
        "bring brought brought bringing",
        "baked drink portable pocket",
        particle="along",
    ),
    verb(
        "weg|werfen wirft warf weggeworfen",
        "throw threw thrown throwing",
        "clothing furniture device writing",
        particle="away",
    ),
    verb("ein|packen packt packte eingepackt", "pack packed packed packing", "clothing text"),
    verb("helfen hilft half geholfen", "help helped helped helping", PEOPLE, case="dat"),
    verb("danken dankt dankte gedankt", "thank thanked thanked thanking", PEOPLE, case="dat"),
    verb(
        "warten wartet wartete gewartet",
        "wait waited waited waiting",
        PEOPLE + " transport",
        object="auf acc = for",
        has_place=True,
    ),
    verb(
        "sprechen spricht sprach gesprochen",
        "talk talked talked talking",
        PEOPLE,
        object="mit dat = to",
        has_place=True,
    ),
    verb(
        "träumen träumt träumte geträumt",
        "dream dreamed dreamed dreaming",
        "vehicle home",
        object="von dat = of",
    ),
)

GIVING = (
    verb("geben gibt gab gegeben", "give gave given giving", "portable pocket text baked"),
    verb("zeigen zeigt zeigte gezeigt", "show showed shown showing", "pocket text vehicle home"),
    verb("schicken schickt schickte geschickt", "send sent sent sending", "text writing clothing"),
    verb("leihen leiht lieh geliehen", "lend lent lent lending", "text vehicle portable"),
)

INTRANSITIVE = (
    verb("schlafen schläft schlief geschlafen", "sleep slept slept sleeping"),
    verb("arbeiten arbeitet arbeitete gearbeitet", "work worked worked working"),
    verb("tanzen tanzt tanzte getanzt", "dance danced danced dancing"),
    verb(
        "frühstücken frühstückt frühstückte gefrühstückt",
        "have_breakfast had_breakfast had_breakfast having_breakfast",
    ),
)

TRAVEL = (
    verb("fahren fährt fuhr gefahren", "travel traveled traveled traveling", auxiliary="sein"),
    verb("fliegen fliegt flog geflogen", "fly flew flown flying", auxiliary="sein"),
    verb("ziehen zieht zog gezogen", "move moved moved moving", auxiliary="sein"),
)

TIMETABLE = (
    verb(
        "ab|fahren fährt fuhr abgefahren",
        "depart departed departed departing",
        "transport",
        auxiliary="sein",
        is_state=True,
    ),
    verb(
        "an|kommen kommt kam angekommen",
        "arrive arrived arrived arriving",
        "transport",
        auxiliary="sein",
        is_state=True,
    ),
    verb("beginnen beginnt begann begonnen", "begin began begun beginning", "event", is_state=True),
    verb("auf|hören hört hörte aufgehört", "end ended ended ending", "event", is_state=True),
)

BE = verb("sein ist war gewesen", "be was been being", auxiliary="sein")
COST = verb("kosten kostet kostete gekostet", "cost cost cost costing", is_state=True)
LIVE = verb("wohnen wohnt wohnte gewohnt", "live lived lived living", is_state=True)
BELONG = verb(
    "gehören gehört gehörte gehört",
    "belong belonged belonged belonging",
    case="dat",
    en_preposition="to",
    is_state=True,
)

SAYING = (
    verb("sagen sagt sagte gesagt", "say said said saying", is_state=True),
    verb("glauben glaubt glaubte geglaubt", "believe believed believed believing", is_state=True),
    verb("wissen weiß wusste gewusst", "know knew known knowing", is_state=True),
    verb("hoffen hofft hoffte gehofft", "hope hoped hoped hoping", is_state=True),
)
WONDERING = (verb("fragen fragt fragte gefragt", "ask asked asked asking"), SAYING[2])

MODALS = (
    Modal(("kann", "können"), "can"),
    Modal(("muss", "müssen"), "have to"),
    Modal(("will", "wollen"), "want to"),
    Modal(("soll", "sollen"), "should"),
    Modal(("darf", "dürfen"), "be allowed to"),
    Modal(("möchte", "möchten"), "would like to"),
)
PAST_MODALS = (
    Modal(("konnte", "konnten"), "can"),
    Modal(("musste", "mussten"), "have to"),
    Modal(("wollte", "wollten"), "want to"),
)
