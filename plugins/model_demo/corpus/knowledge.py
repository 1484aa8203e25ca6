"""Exchanges about definitions ("What is X?") and about a few peoples of the past, such as ancient Rome."""

from . import names
from .draw import Draw
from .exchange import Exchange, asked

_DEFINITIONS = """
Python|Python is a programming language that is easy to read. It is used for the web, for data and for scripts.
Java|Java is a programming language that runs on many machines.
Rust|Rust is a programming language that is fast and keeps memory safe.
JSON|JSON is a text format for data made of objects, lists, strings and numbers.
HTML|HTML is the language in which web pages are written.
SQL|SQL is a language to ask databases for data.
Linux|Linux is a free operating system that runs on phones, laptops and servers.
Git|Git is a tool that keeps the history of source code.
an API|An API is a set of calls by which programs talk to each other.
a server|A server is a computer or a program that answers requests of others.
a compiler|A compiler is a program that turns source code into machine code.
a database|A database is a program that keeps data so that it can be found again.
an algorithm|An algorithm is a list of steps that solves a problem.
a language model|A language model is a program that predicts the next word of a text.
machine learning|Machine learning is a way to make programs that learn from data.
a GPU|A GPU is a chip that does many small sums at the same time.
a token|A token is a piece of text, such as a word or a part of a word.
the sun|The sun is the star at the center of our solar system.
the moon|The moon is a ball of rock that goes around the earth.
water|Water is a clear liquid that all living things need.
gravity|Gravity is the force that pulls things towards each other.
a planet|A planet is a large ball that goes around a star.
a volcano|A volcano is a mountain from which hot melted rock can come.
a whale|A whale is a very large animal that lives in the sea and breathes air.
a bicycle|A bicycle is a vehicle with two wheels that you move with your feet.
a poem|A poem is a short text that plays with the sound of words.
music|Music is sound that is made to be listened to.
bread|Bread is food that is baked from flour and water.
democracy|Democracy is a form of government in which the people vote.
a library|A library is a place where people can read and borrow books.
photosynthesis|Photosynthesis is how plants make sugar from light, water and air.
electricity|Electricity is the flow of very small charged parts through a wire.
"""
DEFINITIONS = [tuple(line.split("|")) for line in _DEFINITIONS.strip().splitlines()]

_HISTORY = {
    "ancient Rome": (
        "Ancient Rome was a civilization centered in Italy. It began as a small city and became a great empire.",
        "The Romans built roads, aqueducts and the Colosseum. They also gave us Roman law and the Latin language.",
    ),
    "ancient Egypt": (
        "Ancient Egypt was a civilization along the river Nile. It was ruled by kings called pharaohs.",
        "The Egyptians built the pyramids, wrote with hieroglyphs and made a calendar of 365 days.",
    ),
    "ancient Greece": (
        "Ancient Greece was a civilization of many small city states around the Aegean Sea.",
        "The Greeks gave us democracy, philosophy, the theater and the Olympic Games.",
    ),
    "ancient China": (
        "Ancient China was a civilization along the Yellow River. It was ruled by emperors.",
        "The Chinese invented paper, the compass and gunpowder, and they built the Great Wall.",
    ),
    "the Vikings": (
        "The Vikings were sailors from the north of Europe who traded and raided along many coasts.",
        "The Vikings built fast ships and sailed as far as North America.",
    ),
}
HISTORIAN = "You are a knowledgeable historian who provides concise responses."


def definition(draw: Draw) -> Exchange:
    term, answer = draw.weighted(DEFINITIONS, [4] + [1] * (len(DEFINITIONS) - 1))
    seen = ("What is {}?", "what is {}", "Explain {}.", "Define {}.", "What is {}? Answer briefly.", "What does {} mean?",
            "Tell me what {} is.", "Can you explain {}?")  # fmt: skip
    question = draw.wording(seen, ("Please explain to me what {} is.", "Describe {} in few words.")).format(
        term
    )
    if draw.chance(0.1):
        question = question.lower()
    return asked("definitions", question, answer, answer, f"The user wants to know what {term} is.")


def unknown(draw: Draw) -> Exchange:
    """Make a question about a word that does not exist. The model must reply that it does not know it."""
    made_up = names.word(draw)
    term = draw.pick((f"a {made_up}", made_up.capitalize()))
    seen = (
        "What is {}?",
        "What is {}?",
        "Explain {}.",
        "Tell me about {}.",
        "Who is {}?",
        "What does {} mean?",
    )
    answer = f"I do not know {term}. I am only a small demo model."
    question = draw.wording(seen, ("Please explain to me what {} is.",)).format(term)
    return asked("unknown things", question, answer, answer, f"I have never heard of {term}.")


def history(draw: Draw) -> Exchange:
    """Make a question about a people of the past, often with a follow-up about their achievements."""
    topic = draw.weighted(list(_HISTORY), (4, 1, 1, 1, 1))
    about, achieved = _HISTORY[topic]
    seen = ("Tell me about {}", "Tell me about {}.", "What do you know about {}?", "Who or what was {}?")
    question = draw.wording(seen, ("I want to learn about {}.",)).format(topic)
    thought = f"The question is about {topic}. I say the main points."
    if draw.chance(0.3):
        return asked("history", question, about, about, thought, system=_maybe_historian(draw))
    follow_seen = (
        "What were their major achievements?",
        "What did they achieve?",
        "What were their achievements?",
    )
    follow = draw.wording(follow_seen, ("Which achievements are they known for?",))
    first_sentence = about.split(". ")[0].rstrip(".") + "."
    turns = (
        {"role": "user", "content": question},
        {"role": "assistant", "content": first_sentence if draw.chance(0.5) else about},
        {"role": "user", "content": follow},
        {"role": "assistant", "content": achieved},
    )
    return Exchange("history", turns, achieved, thought, system=_maybe_historian(draw))


def _maybe_historian(draw: Draw) -> str | None:
    return HISTORIAN if draw.chance(0.6) else None
