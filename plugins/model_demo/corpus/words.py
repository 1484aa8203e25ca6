"""Exchanges about words: opposites, colors, days, months, lists, rephrasing, translation and sentiment."""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

from . import names
from .draw import Draw
from .exchange import Exchange, asked

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
_OPPOSITES = (
    "hot cold|big small|fast slow|up down|happy sad|light dark|old young|rich poor|hard soft|early late|"
    "open closed|full empty|strong weak|wet dry|loud quiet|high low|long short|good bad|day night|left right|"
    "in out|clean dirty|thick thin|near far|heavy light|true false|black white|first last|new old|safe dangerous"
)
OPPOSITES = [tuple(pair.split()) for pair in _OPPOSITES.split("|")]
_COLORED = (
    "the sky blue|grass green|snow white|blood red|a banana yellow|coal black|a lemon yellow|the sea blue|"
    "a tomato red|milk white|a carrot orange|a frog green|chocolate brown|a strawberry red|the night black"
)
COLORED = [tuple(pair.rsplit(" ", 1)) for pair in _COLORED.split("|")]
SORTS = {
    "fruits": "apple, banana, orange, pear, grape",
    "colors": "red, blue, green, yellow, purple",
    "animals": "dog, cat, horse, cow, sheep",
    "vegetables": "carrot, potato, onion, tomato, pea",
    "planets": "Mercury, Venus, Earth, Mars, Jupiter",
    "programming languages": "Python, Java, C, Rust, Go",
    "sports": "football, tennis, swimming, running, rowing",
    "instruments": "piano, guitar, violin, drum, flute",
}
_SUBJECTS = (
    "The cat|The teacher|My friend|The old man|A child|The doctor|The bird|Our neighbour|The baker".split("|")
)
_DEEDS = (
    "is very tired=needs some sleep|is very happy=is in a good mood|went home early=left for home soon|"
    "likes to read=enjoys books|is hungry=wants to eat|runs fast=is a quick runner|is afraid=is scared|"
    "lost the key=cannot find the key|speaks quietly=talks in a low voice|bought a car=got a new car"
)
DEEDS = [tuple(pair.split("=")) for pair in _DEEDS.split("|")]
_TRANSLATIONS = """
hello|bonjour|hallo|hola|ciao
goodbye|au revoir|auf Wiedersehen|adios|arrivederci
thank you|merci|danke|gracias|grazie
yes|oui|ja|si|si
no|non|nein|no|no
good morning|bonjour|guten Morgen|buenos dias|buongiorno
please|s'il vous plait|bitte|por favor|per favore
water|eau|Wasser|agua|acqua
bread|pain|Brot|pan|pane
house|maison|Haus|casa|casa
cat|chat|Katze|gato|gatto
dog|chien|Hund|perro|cane
book|livre|Buch|libro|libro
friend|ami|Freund|amigo|amico
"""
TRANSLATIONS = [tuple(line.split("|")) for line in _TRANSLATIONS.strip().splitlines()]
_LANGUAGES = ("English", "French", "German", "Spanish", "Italian")
_MOODS = {
    "positive": "I love it|It is great|I am very happy with it|It works well|What a wonderful gift|The best of all",
    "negative": "I hate it|It is terrible|I am very unhappy with it|It broke at once|What a bad idea|The worst of all",
}


def translation(draw: Draw) -> Exchange:
    row, language = draw.pick(TRANSLATIONS), draw.integer(1, 4)
    seen = ("How do you say {} in {}?", "What is {} in {}?", "Translate {} to {}.", "Translate {} into {}:",
            "What does {} mean in {}?")  # fmt: skip
    question = draw.wording(seen, ("Give me the translation of {} to {}.",)).format(
        row[0], _LANGUAGES[language]
    )
    answer = f"In {_LANGUAGES[language]}, {row[0]} is {row[language]}."
    return asked("words", question, answer, answer, f"I translate {row[0]} to {_LANGUAGES[language]}.")


def mood(draw: Draw) -> Exchange:
    """Make a question whether a sentence is positive or negative."""
    answer = draw.pick(list(_MOODS))
    said = draw.pick(_MOODS[answer].split("|"))
    about = draw.pick(("", f" The {names.word(draw)} was new.", f" I bought a {draw.pick(names.THINGS)}."))
    seen = ("Is this positive or negative? {}", "Classify as positive or negative: {}", "What is the sentiment of: {}",
            "Positive or negative: {}")  # fmt: skip
    question = draw.wording(seen, ("Tell me if this is positive or negative: {}",)).format(f"{said}.{about}")
    return asked("words", question, answer, answer, f"{said} sounds {answer}.")


def opposite(draw: Draw) -> Exchange:
    asked_for, other = draw.pick(OPPOSITES)
    seen = (
        "What is the opposite of {}?",
        "Opposite of {}?",
        "Give me the opposite of {}.",
        "the opposite of {}",
    )
    question = draw.wording(seen, ("Which word is the opposite of {}?",)).format(asked_for)
    answer = f"The opposite of {asked_for} is {other}."
    return asked("words", question, answer, f"is {other}.", f"{asked_for} and {other} are opposites.")


def color(draw: Draw) -> Exchange:
    thing, shade = draw.pick(COLORED)
    seen = ("What color is {}?", "What colour is {}?", "Which color is {}?", "What is the color of {}?")
    question = draw.wording(seen, ("Tell me the color of {}.",)).format(thing)
    answer = f"{thing[0].upper()}{thing[1:]} is {shade}."
    return asked("words", question, answer, f"is {shade}.", f"I think of {thing}. The color is {shade}.")


def calendar(draw: Draw) -> Exchange:
    """Make a question which day or month comes after or before another."""
    kind, names = draw.pick((("day", DAYS), ("month", MONTHS)))
    at = draw.integer(0, len(names) - 1)
    side, step = draw.pick((("after", 1), ("before", -1)))
    result = names[(at + step) % len(names)]
    seen = ("Which {kind} comes {side} {name}?", "What {kind} is {side} {name}?", "What comes {side} {name}?")
    wording = draw.wording(seen, ("Tell me the {kind} {side} {name}.",))
    question = wording.format(kind=kind, side=side, name=names[at])
    answer = f"{result} comes {side} {names[at]}."
    return asked(
        "words", question, answer, answer, f"I go through the {kind}s: {result} is {side} {names[at]}."
    )


def sequence(draw: Draw) -> Exchange:
    """Make a request to list all days or all months."""
    kind, names = draw.pick((("days of the week", DAYS), ("months of the year", MONTHS)))
    seen = ("List the {}.", "Name the {}.", "What are the {}?", "Tell me all {}.")
    question = draw.wording(seen, ("Can you list all the {}?",)).format(kind)
    answer = f"The {kind} are {', '.join(names[:-1])} and {names[-1]}."
    return asked("lists", question, answer, answer, f"I say the {kind} in order.")


def sort_of(draw: Draw) -> Exchange:
    """Make a request to list some things of one sort. The reply has one per line."""
    kind = draw.pick(list(SORTS))
    count = draw.integer(2, 5)
    seen = ("List {} {}.", "Name {} {}.", "Give me {} {}.", "Tell me {} {}.")
    question = draw.wording(seen, ("Can you give me {} {}?",)).format(count, kind)
    names = SORTS[kind].split(", ")[:count]
    answer = "\n".join(f"{number}. {name}" for number, name in enumerate(names, 1))
    return asked("lists", question, answer, answer, f"I need {count} {kind}.")


def rephrase(draw: Draw) -> Exchange:
    subject, (said, otherwise) = draw.fresh(lambda: (draw.pick(_SUBJECTS), draw.pick(DEEDS)))
    seen = (
        "Rephrase: {}",
        "Rephrase this sentence: {}",
        "Say this in other words: {}",
        "Put it differently: {}",
    )
    question = draw.wording(seen, ("Please rephrase: {}",)).format(f"{subject} {said}.")
    answer = f"{subject} {otherwise}."
    return asked(
        "words", question, answer, answer, f"I keep who it is about, {subject}, and change the rest."
    )
