"""Nouns, adjectives and names of the German-English grammar: one word for one word, both ways."""

from adasparse.demo.grammar import english
from adasparse.demo.grammar.meaning import Adjective, Agreement, Name, Noun, Pronoun

__all__ = [
    "ADJECTIVES",
    "CASTS",
    "CITIES",
    "COLORED",
    "COLORS",
    "NOUNS",
    "PRONOUNS",
    "QUALITIES",
    "WHO",
]

#: By kind. German singular, gender, plural (``-`` for none) and the ending of weak masculines;
#: English singular, and its plural if irregular.
NOUN_TABLE = {
    "person": "Mann m Männer = man men; Frau f Frauen = woman women; Lehrer m Lehrer = teacher;"
    "Student m Studenten en = student; Nachbar m Nachbarn n = neighbor; Arzt m Ärzte = doctor;"
    "Kellner m Kellner = waiter; Kellnerin f Kellnerinnen = waitress",
    "young": "Kind n Kinder = child children; Mädchen n Mädchen = girl; Junge m Jungen n = boy",
    "family": "Bruder m Brüder = brother; Schwester f Schwestern = sister; Sohn m Söhne = son;"
    "Tochter f Töchter = daughter; Tante f Tanten = aunt; Onkel m Onkel = uncle",
    "animal": "Hund m Hunde = dog; Katze f Katzen = cat; Pferd n Pferde = horse",
    "produce": "Apfel m Äpfel = apple; Birne f Birnen = pear; Tomate f Tomaten = tomato tomatoes;"
    "Ei n Eier = egg; Kartoffel f Kartoffeln = potato potatoes",
    "baked": "Kuchen m Kuchen = cake; Brötchen n Brötchen = roll; Keks m Kekse = cookie",
    "drink": "Kaffee m - = coffee; Tee m - = tea; Milch f - = milk; Wasser n - = water;"
    "Kräutertee m - = herbal_tea",
    "staple": "Brot n - = bread; Käse m - = cheese; Fleisch n - = meat",
    "dish": "Kartoffelsuppe f - = potato_soup; Reis m - = rice",
    "text": "Buch n Bücher = book; Zeitung f Zeitungen = newspaper;"
    "Wörterbuch n Wörterbücher = dictionary",
    "writing": "Brief m Briefe = letter; Roman m Romane = novel; Gedicht n Gedichte = poem",
    "vehicle": "Auto n Autos = car; Fahrrad n Fahrräder = bicycle; Motorrad n Motorräder ="
    " motorcycle",
    "furniture": "Tisch m Tische = table; Stuhl m Stühle = chair; Schreibtisch m Schreibtische ="
    " desk; Bücherregal n Bücherregale = bookcase; Teppich m Teppiche = carpet",
    "clothing": "Hemd n Hemden = shirt; Mantel m Mäntel = coat; Hut m Hüte = hat;"
    "Handschuh m Handschuhe = glove",
    "device": "Lampe f Lampen = lamp; Kamera f Kameras = camera; Waschmaschine f Waschmaschinen ="
    " washing_machine; Kühlschrank m Kühlschränke = refrigerator",
    "portable": "Koffer m Koffer = suitcase; Tasche f Taschen = bag;"
    "Regenschirm m Regenschirme = umbrella; Taschenlampe f Taschenlampen = flashlight",
    "pocket": "Schlüssel m Schlüssel = key; Geldbeutel m Geldbeutel = wallet;"
    "Fahrkarte f Fahrkarten = ticket",
    "opening": "Tür f Türen = door; Fenster n Fenster = window",
    "home": "Haus n Häuser = house; Wohnung f Wohnungen = apartment",
    "place": "Küche f Küchen = kitchen; Garten m Gärten = garden; Büro n Büros = office;"
    "Bibliothek f Bibliotheken = library; Park m Parks = park; Hotel n Hotels = hotel;"
    "Wohnzimmer n Wohnzimmer = living_room; Restaurant n Restaurants = restaurant",
    "transport": "Zug m Züge = train; Bus m Busse = bus; Straßenbahn f Straßenbahnen = streetcar",
    "event": "Film m Filme = movie; Konzert n Konzerte = concert;"
    "Besprechung f Besprechungen = meeting",
}

#: German, with stem and comparative if they are irregular; English, with its comparative if that
#: is not made by *-er* (``more`` stands for *more* before it).
ADJECTIVE_TABLE = (
    "rot = red; blau = blue; grün = green; gelb = yellow; schwarz = black; weiß = white;"
    "braun = brown; groß groß größer = big bigger; klein = small; neu = new; alt alt älter = old;"
    "jung jung jünger = young; schön = beautiful more; teuer teur teurer = expensive more;"
    "billig = cheap; schwer = heavy heavier; modern = modern more; schnell = fast;"
    "klug klug klüger = clever; freundlich = friendly friendlier; berühmt = famous more;"
    "nett = nice nicer; frisch = fresh; kalt = cold; heiß = hot hotter;"
    "interessant = interesting more; langweilig = boring more; lang lang länger = long;"
    "kurz kurz kürzer = short; müde = tired more; traurig = sad sadder;"
    "glücklich = happy happier; krank = sick; kaputt = broken more; ruhig = quiet;"
    "dunkel dunkl dunkler = dark"
)

COLORS = ("rot", "blau", "grün", "gelb", "schwarz", "weiß", "braun")
#: The kinds of noun that may have a color.
COLORED = ("vehicle", "furniture", "clothing", "portable", "opening")
#: The adjectives that suit each kind of noun, colors apart.
QUALITIES = {
    "person": ["jung", "alt", "klug", "freundlich", "berühmt", "nett"],
    "young": ["klein", "klug", "freundlich", "nett"],
    "family": ["jung", "alt", "klug", "nett"],
    "animal": ["groß", "klein", "jung", "alt", "schön"],
    "produce": ["groß", "klein", "frisch"],
    "baked": ["groß", "klein", "frisch"],
    "drink": ["kalt", "heiß"],
    "staple": ["frisch", "billig", "teuer"],
    "dish": ["heiß", "kalt", "frisch"],
    "text": ["neu", "alt", "interessant", "langweilig", "teuer", "schwer"],
    "writing": ["interessant", "langweilig", "lang", "kurz", "schön"],
    "vehicle": ["groß", "klein", "neu", "alt", "schnell", "teuer", "billig", "schön", "modern"],
    "furniture": ["groß", "klein", "neu", "alt", "teuer", "billig", "schön", "modern", "schwer"],
    "clothing": ["neu", "alt", "teuer", "billig", "schön"],
    "device": ["groß", "klein", "neu", "alt", "teuer", "billig", "modern", "kaputt"],
    "portable": ["groß", "klein", "neu", "alt", "schön"],
    "pocket": ["neu", "alt"],
    "opening": ["groß", "klein", "neu", "alt"],
    "home": ["groß", "klein", "neu", "alt", "teuer", "schön", "modern", "ruhig", "dunkel"],
    "place": ["groß", "klein", "neu", "alt", "schön", "ruhig", "dunkel"],
    "transport": ["neu", "alt", "modern"],
    "event": ["neu", "lang", "kurz", "interessant", "langweilig"],
}


def _names(female: str, male: str) -> tuple[Name, ...]:
    titles = {"Frau": "Mrs.", "Herr": "Mr."}
    listed = [(name, "f") for name in female.split()] + [(name, "m") for name in male.split()]
    entries = []
    for name, gender in listed:
        title, _, last = name.rpartition("_")
        en = f"{titles[title]} {last}" if title else last
        entries.append(Name(name.replace("_", " "), en, gender))  # type: ignore[arg-type]
    return tuple(entries)


#: Three casts, so that nobody meets themselves within a sentence: those who act, those who act in
#: its other clause, and those to whom it is done.
CASTS = {
    "first": _names("Anna Julia Maria Frau_Schmidt", "Thomas Peter Lukas"),
    "second": _names("Sophie Klara Lena", "Felix Jonas Paul Herr_Weber"),
    "object": _names("Emma Frau_Fischer", "Max Herr_Wagner"),
}

CITIES = (
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("München", "Munich"),
    ("Wien", "Vienna"),
    ("Köln", "Cologne"),
    ("Prag", "Prague"),
    ("Rom", "Rome"),
    ("Paris", "Paris"),
    ("Warschau", "Warsaw"),
)

#: I, we, he, she. Others would be ambiguous: *Sie* is you, she or they, *you* is du, ihr or Sie.
PRONOUNS = (
    Pronoun(("ich", "mich", "mir"), ("I", "me"), Agreement(1, False)),
    Pronoun(("wir", "uns", "uns"), ("we", "us"), Agreement(1, True)),
    Pronoun(("er", "ihn", "ihm"), ("he", "him"), Agreement(3, False, "m")),
    Pronoun(("sie", "sie", "ihr"), ("she", "her"), Agreement(3, False, "f")),
)
WHO = Pronoun(("wer", "wen", "wem"), ("who", "who"), Agreement(3, False, "m"))


def _noun(row: str, kind: str) -> Noun:
    german, _, other = row.partition("=")
    de, gender, de_plural, *weak = german.split()
    en, *plural = (word.replace("_", " ") for word in other.split())
    return Noun(
        de=de,
        gender=gender,  # type: ignore[arg-type]
        de_plural="" if de_plural == "-" else de_plural,
        en=en,
        en_plural=plural[0] if plural else english.plural(en),
        kind=kind,
        weak=weak[0] if weak else "",
    )


def _adjective(row: str) -> Adjective:
    german, _, other = row.partition("=")
    de, *irregular = german.split()
    en, *more = other.split()
    stem, de_more = irregular or (de.removesuffix("e"), de.removesuffix("e") + "er")
    en_more = f"more {en}" if more == ["more"] else more[0] if more else en + "er"
    return Adjective(de, en, stem, de_more, en_more)


NOUNS = {kind: [_noun(row, kind) for row in rows.split(";")] for kind, rows in NOUN_TABLE.items()}
ADJECTIVES = {entry.de: entry for entry in map(_adjective, ADJECTIVE_TABLE.split(";"))}
