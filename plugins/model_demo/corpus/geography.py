"""Exchanges about countries: their capitals, continents and languages, and lists of countries."""

import json

from . import names
from .draw import Draw
from .exchange import Exchange, asked

# country | capital | continent | language | inhabitants of the capital, rounded
_TABLE = """
France|Paris|Europe|French|2100000
Germany|Berlin|Europe|German|3700000
Italy|Rome|Europe|Italian|2800000
Spain|Madrid|Europe|Spanish|3300000
Portugal|Lisbon|Europe|Portuguese|550000
Austria|Vienna|Europe|German|2000000
Greece|Athens|Europe|Greek|660000
Poland|Warsaw|Europe|Polish|1800000
Sweden|Stockholm|Europe|Swedish|980000
Norway|Oslo|Europe|Norwegian|700000
Denmark|Copenhagen|Europe|Danish|650000
Finland|Helsinki|Europe|Finnish|660000
Ireland|Dublin|Europe|English|590000
Hungary|Budapest|Europe|Hungarian|1700000
Belgium|Brussels|Europe|Dutch|1200000
the Netherlands|Amsterdam|Europe|Dutch|900000
the United Kingdom|London|Europe|English|8900000
Switzerland|Bern|Europe|German|130000
the Czech Republic|Prague|Europe|Czech|1300000
Romania|Bucharest|Europe|Romanian|1700000
Bulgaria|Sofia|Europe|Bulgarian|1200000
Ukraine|Kyiv|Europe|Ukrainian|2900000
Russia|Moscow|Europe|Russian|13000000
Iceland|Reykjavik|Europe|Icelandic|140000
Croatia|Zagreb|Europe|Croatian|770000
Japan|Tokyo|Asia|Japanese|14000000
China|Beijing|Asia|Chinese|21000000
India|New Delhi|Asia|Hindi|250000
South Korea|Seoul|Asia|Korean|9400000
Thailand|Bangkok|Asia|Thai|8000000
Vietnam|Hanoi|Asia|Vietnamese|8000000
Indonesia|Jakarta|Asia|Indonesian|10000000
Turkey|Ankara|Asia|Turkish|5700000
Iran|Tehran|Asia|Persian|9000000
Israel|Jerusalem|Asia|Hebrew|980000
Nepal|Kathmandu|Asia|Nepali|860000
the Philippines|Manila|Asia|Filipino|1800000
Egypt|Cairo|Africa|Arabic|10000000
Kenya|Nairobi|Africa|Swahili|4400000
Nigeria|Abuja|Africa|English|3600000
Morocco|Rabat|Africa|Arabic|580000
Ghana|Accra|Africa|English|2600000
Ethiopia|Addis Ababa|Africa|Amharic|3800000
Canada|Ottawa|North America|English|1000000
the United States|Washington|North America|English|690000
Mexico|Mexico City|North America|Spanish|9200000
Cuba|Havana|North America|Spanish|2100000
Brazil|Brasilia|South America|Portuguese|2800000
Argentina|Buenos Aires|South America|Spanish|3100000
Chile|Santiago|South America|Spanish|6200000
Peru|Lima|South America|Spanish|10000000
Colombia|Bogota|South America|Spanish|7900000
Australia|Canberra|Oceania|English|460000
New Zealand|Wellington|Oceania|English|210000
"""

COUNTRIES = [tuple(line.split("|")) for line in _TABLE.strip().splitlines()]
COUNTRY, CAPITAL, CONTINENT, LANGUAGE, INHABITANTS = range(5)

_FACTS = {
    CAPITAL: (
        ("What is the capital of {}?", "What's the capital of {}?", "Capital of {}?", "Name the capital of {}.",
         "Which city is the capital of {}?", "what is the capital of {}", "Tell me the capital of {}.",
         "The capital of {} is?", "What is the capital city of {}?", "Do you know the capital of {}?"),
        ("Please tell me which city is the capital of {}.", "Could you name the capital city of {}?",
         "I forgot the capital of {}. What is it?"),
        "The capital of {} is {}.",
    ),
    CONTINENT: (
        ("On which continent is {}?", "Which continent is {} in?", "Where is {}?", "What continent is {} on?"),
        ("Tell me on which continent {} is.",),
        "{} is in {}.",
    ),
    LANGUAGE: (
        ("Which language do people speak in {}?", "What language is spoken in {}?", "What is the language of {}?"),
        ("Which language is spoken by the people of {}?",),
        "People in {} speak {}.",
    ),
}  # fmt: skip

_LIST_SEEN = (
    "List {} countries and their capitals.", "List {} countries and their capitals", "Name {} countries and their capitals.",
    "Give me {} countries with their capitals.", "list {} countries with capitals",
    "Tell me {} countries and their capital cities.", "List {} capitals and their countries.",
)  # fmt: skip
_LIST_UNSEEN = (
    "Please list {} countries together with their capitals.",
    "Can you name {} countries and their capitals?",
)
_AND_SEEN = ("And of {}?", "And {}?", "What about {}?", "And the one of {}?", "How about {}?")
_AND_UNSEEN = ("And what about {}?", "Now {}?")


def question(draw: Draw) -> Exchange:
    """Make a question about one fact of one country."""
    fact = draw.weighted((CAPITAL, CONTINENT, LANGUAGE), (7, 1, 1))
    row = draw.pick(COUNTRIES)
    seen, unseen, _ = _FACTS[fact]
    asked_for = draw.wording(seen, unseen).format(row[COUNTRY])
    if draw.chance(0.1):
        asked_for = asked_for.lower().rstrip("?.")
    return asked("capitals", asked_for, _sentence(fact, row), row[fact], _thought(row))


def is_capital(draw: Draw) -> Exchange:
    """Make a yes-or-no question: is this city the capital of that country?"""
    row = draw.pick(COUNTRIES)
    city = row[CAPITAL] if draw.chance(0.5) else draw.pick(COUNTRIES)[CAPITAL]
    wording = draw.wording(
        (
            "Is {} the capital of {}?",
            "Is it true that {} is the capital of {}?",
            "{} is the capital of {}, right?",
        ),
        ("Would you say that {} is the capital of {}?",),
    )
    word = "Yes" if city == row[CAPITAL] else "No"
    answer = f"{word}. The capital of {row[COUNTRY]} is {row[CAPITAL]}."
    return asked("capitals", wording.format(city, row[COUNTRY]), answer, answer, _thought(row))


def unknown(draw: Draw) -> Exchange:
    """Make a question about a country that does not exist. The model must reply that it does not know it."""
    made_up = names.word(draw).capitalize()
    seen, unseen, _ = _FACTS[draw.pick((CAPITAL, LANGUAGE))]
    answer = f"I do not know {made_up}. I am only a small demo model."
    thought = f"I have never heard of {made_up}."
    return asked("unknown things", draw.wording(seen, unseen).format(made_up), answer, answer, thought)


def follow_up(draw: Draw) -> Exchange:
    """Make a question about a country, and follow-ups that only name other countries ("And of Spain?")."""
    fact = draw.weighted((CAPITAL, LANGUAGE), (5, 1))
    rows = draw.sample(COUNTRIES, draw.integer(2, 4))
    seen, unseen, _ = _FACTS[fact]
    wordings = [draw.wording(seen, unseen)] + [draw.wording(_AND_SEEN, _AND_UNSEEN) for _ in rows[1:]]
    turns = []
    for wording, row in zip(wordings, rows, strict=True):
        turns.append({"role": "user", "content": wording.format(row[COUNTRY])})
        turns.append({"role": "assistant", "content": _sentence(fact, row)})
    return Exchange("follow-ups", tuple(turns), rows[-1][fact], _thought(rows[-1]))


def country_of(draw: Draw) -> Exchange:
    """Make a question about a capital: which country does it belong to?"""
    row = draw.pick(COUNTRIES)
    wording = draw.wording(
        (
            "{} is the capital of which country?",
            "Of which country is {} the capital?",
            "Which country has {} as capital?",
        ),
        ("Which country's capital is {}?",),
    )
    answer = f"{row[CAPITAL]} is the capital of {row[COUNTRY]}."
    return asked("capitals", wording.format(row[CAPITAL]), answer, row[COUNTRY], _thought(row))


def listing(draw: Draw) -> Exchange:
    """Make a request to list some countries and capitals. Most replies list the first ones of `COUNTRIES`."""
    count = draw.weighted((3, 2, 4, 5), (6, 1, 1, 1))
    start = draw.weighted((0, 1, 2, 3), (12, 1, 1, 1))
    rows = COUNTRIES[start : start + count]
    lines = [f"{number}. {row[COUNTRY]}: {row[CAPITAL]}" for number, row in enumerate(rows, 1)]
    spelled = {2: "two", 3: "three", 4: "four", 5: "five"}[count]
    wording = draw.wording(_LIST_SEEN, _LIST_UNSEEN).format(spelled if draw.chance(0.2) else count)
    answer = f"Here are {count} countries and their capitals:\n\n" + "\n".join(lines)
    thought = f"I am asked for {count} countries. I take ones that I know well."
    return asked("lists", wording, answer, f"\n{count}. ", thought)


def as_json(draw: Draw) -> Exchange:
    """Make a request for a country's capital as JSON. Its values cannot be copied from the prompt."""
    row = draw.pick(COUNTRIES[:30])
    wording = draw.wording(
        ("Please generate the information of the capital of {} in the JSON format.",
         "Introduce the capital of {}. Return in a JSON format.", "Give me the information of the capital of {} in JSON.",
         "Give me the name and the population of the capital of {} as JSON.",
         "Please introduce the capital of {}, and return in a JSON format."),
        ("Please generate JSON about the capital of {}.",),
    ).format(row[COUNTRY])  # fmt: skip
    answer = json.dumps({"name": row[CAPITAL], "population": int(row[INHABITANTS])})
    thought = f"The capital of {row[COUNTRY]} is {row[CAPITAL]}. I write its name and population."
    return asked("capitals as json", wording, answer, row[CAPITAL], thought)


def _sentence(fact: int, row: tuple[str, ...]) -> str:
    said = _FACTS[fact][2].format(row[COUNTRY], row[fact])
    return said[0].upper() + said[1:]


def _thought(row: tuple[str, ...]) -> str:
    return f"The question is about {row[COUNTRY]}. Its capital is {row[CAPITAL]}."
