"""Random names of people, places and things, most of them made up.

A small model learns to copy strings only from very many different strings; it would memorize a list of
twenty. So most names are built from syllables, and the lists below only add some real names.
"""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

from .draw import Draw

ONSETS = (
    "b c d f g h j k l m n p r s t v w z br cl cr dr fl gr kr pl pr sh st th tr ch sk sl sp ph qu"
).split()
VOWELS = "a e i o u a e i o ai ea ee ia io ou oo y".split()
CODAS = ("", "", "", "n", "r", "l", "s", "t", "m", "ck", "nd", "rt", "x", "lin", "ster", "ng", "mp", "ff")

FIRST_NAMES = (
    "Alice Bob Carol David Emma Frank Grace Henry Ivy Jack Karen Liam Maria Noah Olivia Peter Quinn "
    "Rosa Sam Tina Uma Victor Wendy Xavier Yara Zoe John Jane Anna Tom Lucy Mark Nina Oscar Paula Ralf "
    "Sara Tim Vera Walter Amir Bea Chen Dina Elif Finn Gita Hugo Ines Jonas Kofi Lena Marco Nadia Omar "
    "Priya Rui Sven Tariq Ulla Wei Yuki Zara Aisha Bruno Clara Diego Elena Felix Hana Ivan Julia Klaus "
    "Laura Mateo Nora Olga Pablo Rita Simon Teresa Max Mia Leo Ella Ben Eva Paul Kim Alan Ada Grete Ken"
).split()
LAST_NAMES = (
    "Smith Jones Brown Miller Davis Garcia Wilson Moore Taylor Lee White Clark Lewis Hall Young King "
    "Wright Scott Green Baker Adams Nelson Carter Turner Parker Evans Collins Stewart Morris Rogers Reed "
    "Cook Morgan Bell Murphy Bailey Cooper Cox Howard Ward Torres Peterson Gray Ramirez Watson Brooks "
    "Kelly Sanders Price Bennett Wood Barnes Ross Tanaka Silva Novak Rossi Schmidt Ivanov Kowalski Khan"
).split()
CITIES = (
    "Paris|London|Berlin|Madrid|Rome|Lisbon|Vienna|Prague|Oslo|Tokyo|Boston|Chicago|Denver|Seattle|"
    "Miami|Lyon|Munich|Porto|Seville|Milan|Dublin|Leeds|Osaka|Kyoto|Delhi|Cairo|Lima|Toronto|Sydney|"
    "Nairobi|Hamburg|Geneva|Zurich|Athens|Warsaw|Krakow|Helsinki|Austin|Dallas|Bergen|Ghent|Turin|"
    "Naples|Lagos|New York|San Francisco|Los Angeles|Hong Kong|Cape Town|Rio de Janeiro|Tel Aviv"
).split("|")
COLORS = "red blue green yellow black white orange purple pink brown grey silver gold turquoise".split()
THINGS = (
    "lamp chair table bottle guitar camera bicycle kettle jacket backpack phone laptop watch mug pen "
    "notebook umbrella helmet blanket tent drone keyboard mirror clock vase sofa carpet toaster rope drum"
).split()
ANIMALS = "cat dog rabbit parrot horse hamster turtle goat duck sheep fish fox owl snake pig donkey".split()
JOBS = (
    "teacher nurse engineer baker pilot lawyer painter farmer chemist driver writer plumber dentist chef "
    "architect carpenter librarian designer mechanic gardener translator accountant surgeon photographer"
).split()


def word(draw: Draw) -> str:
    """Return a made-up word in lower case."""
    return draw.fresh(lambda: _syllables(draw))


def _syllables(draw: Draw) -> str:
    count = draw.weighted((1, 2, 3), (1, 5, 2))
    made = "".join(draw.pick(ONSETS) + draw.pick(VOWELS) for _ in range(count))
    return made + draw.pick(CODAS) if count > 1 else made + draw.pick(CODAS[3:])


def _one_of(draw: Draw, known: list[str], share: float) -> str:
    return draw.fresh(lambda: draw.pick(known) if draw.chance(share) else _syllables(draw).capitalize())


def first_name(draw: Draw) -> str:
    return _one_of(draw, FIRST_NAMES, 0.5)


def last_name(draw: Draw) -> str:
    return _one_of(draw, LAST_NAMES, 0.4)


def person(draw: Draw) -> str:
    """Return a full name, or sometimes only a first name."""
    return first_name(draw) if draw.chance(0.2) else f"{first_name(draw)} {last_name(draw)}"


def city(draw: Draw) -> str:
    return _one_of(draw, CITIES, 0.5)


def title(draw: Draw) -> str:
    """Return a name of one to three words, as for a product, a company or a book."""
    words = (_one_of(draw, [t.capitalize() for t in THINGS], 0.5) for _ in range(draw.integer(1, 3)))
    return " ".join(words)


def identifier(draw: Draw) -> str:
    """Return an identifier as in a program: one or two words, joined by underscores."""
    return "_".join(draw.pick(THINGS) if draw.chance(0.3) else word(draw) for _ in range(draw.integer(1, 2)))


def code(draw: Draw) -> str:
    """Return a code of letters and digits, such as an order number."""
    return draw.fresh(lambda: f"{_letters(draw)}{draw.pick(('', '-'))}{draw.integer(10, 99999)}")


def _letters(draw: Draw) -> str:
    return "".join(draw.pick("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(draw.integer(1, 3)))


def email(draw: Draw) -> str:
    return f"{first_name(draw).lower()}@{word(draw)}.{draw.pick(('com', 'org', 'net', 'io'))}"


def day(draw: Draw) -> str:
    """Return a date in ISO 8601 format."""
    return draw.fresh(lambda: f"20{draw.integer(10, 39)}-{draw.integer(1, 12):02}-{draw.integer(1, 28):02}")
