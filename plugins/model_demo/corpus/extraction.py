"""Exchanges that extract facts from a text into JSON of a requested shape."""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import names
from .draw import Draw
from .exchange import Exchange, Message

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}
_BLANKS: dict[type, Any] = {str: "...", int: 0, float: 0.0, bool: True, list: ["..."]}


@dataclass(frozen=True)
class Field:
    """A fact that a text may state.

    Attributes:
        keys: possible JSON keys, separated by spaces.
        make: function that makes a random value.
        said: sentences that state the fact, separated by `|`.
    """

    keys: str
    make: Callable[[Draw], Any]
    said: str

    def sentence(self, subject: str, value: Any, draw: Draw) -> str:
        wording = draw.pick(self.said.split("|"))
        if isinstance(value, bool):
            wording = wording.replace("{not}", "" if value else "not ")
        shown = f"{', '.join(value[:-1])} and {value[-1]}" if isinstance(value, list) else value
        said = wording.format(s=subject, v=shown)
        return said[0].upper() + said[1:]


def _whole(low: int, high: int) -> Callable[[Draw], int]:
    return lambda draw: draw.integer(low, high)


def _price(draw: Draw) -> float:
    return draw.integer(1, 200) + draw.pick((0.5, 0.25, 0.75, 0.99, 0.2))


def _one_of(options: list[str]) -> Callable[[Draw], str]:
    return lambda draw: draw.pick(options) if draw.chance(0.7) else names.word(draw)


def _some_of(options: list[str]) -> Callable[[Draw], list[str]]:
    return lambda draw: draw.sample(options, draw.integer(2, 3))


def _yes_or_no(draw: Draw) -> bool:
    return draw.chance(0.5)


# The first field of each kind is the name of the thing that the text is about.
KINDS: dict[str, tuple[Field, ...]] = {
    "person": (
        Field("name full_name person customer user", names.person, ""),
        Field("age years age_years", _whole(3, 99), "{s} is {v} years old.|{s} is aged {v}.|{s}, who is {v}, is well."),
        Field("city town location home", names.city, "{s} lives in {v}.|{s} comes from {v}.|{s} moved to {v}."),
        Field("job occupation profession", _one_of(names.JOBS), "{s} works as a {v}.|{s} is a {v} by profession."),
        Field("email mail contact", names.email, "The email address is {v}.|You can write to {v}."),
        Field("company employer", names.title, "{s} works at {v}.|{s} is employed by {v}."),
        Field("is_member member active", _yes_or_no, "{s} is {not}a member."),
        Field("hobbies interests likes", _some_of("chess tennis music reading cooking hiking dancing".split()),
              "{s} likes {v}.|{s} enjoys {v}."),
    ),
    "product": (
        Field("product name item product_name", names.title, ""),
        Field("price cost price_usd", _price, "{s} costs {v} dollars.|The price of {s} is {v} dollars."),
        Field("color colour", _one_of(names.COLORS), "{s} is {v}.|The color of {s} is {v}."),
        Field("quantity count amount stock", _whole(1, 500), "There are {v} pieces of it.|We have {v} of them."),
        Field("in_stock available", _yes_or_no, "{s} is {not}in stock."),
        Field("sku code id", names.code, "The code is {v}.|It has the code {v}."),
        Field("brand maker manufacturer", names.title, "{s} is made by {v}.|The maker is {v}."),
        Field("tags categories", _some_of("home garden office sport kitchen travel kids".split()), "It belongs to {v}."),
    ),
    "event": (
        Field("event title name event_name", names.title, ""),
        Field("date day when", names.day, "{s} takes place on {v}.|{s} is on {v}."),
        Field("city place location venue", names.city, "{s} is held in {v}.|It will be in {v}."),
        Field("guests participants attendees", _whole(2, 900), "{v} people will come.|{s} has {v} guests."),
        Field("host organizer contact", names.person, "The host is {v}.|{v} organizes it."),
        Field("price fee ticket_price", _price, "A ticket costs {v} dollars.|The fee is {v} dollars."),
    ),
    "pet": (
        Field("name pet pet_name", names.first_name, ""),
        Field("species animal kind", _one_of(names.ANIMALS), "{s} is a {v}."),
        Field("age years", _whole(1, 20), "{s} is {v} years old."),
        Field("owner owner_name", names.person, "{s} belongs to {v}.|The owner is {v}."),
        Field("color fur_color", _one_of(names.COLORS), "{s} is {v}.|{s} has {v} fur."),
        Field("vaccinated", _yes_or_no, "{s} is {not}vaccinated."),
    ),
    "order": (
        Field("order_id order id number", names.code, ""),
        Field("customer name buyer", names.person, "{s} was placed by {v}.|The customer of {s} is {v}."),
        Field("item product", names.title, "The item is {v}.|It contains {v}."),
        Field("quantity count", _whole(1, 60), "The quantity is {v}.|{v} pieces were ordered."),
        Field("total price amount", _price, "The total is {v} dollars.|It costs {v} dollars."),
        Field("date order_date", names.day, "The date is {v}.|It was placed on {v}."),
        Field("paid is_paid", _yes_or_no, "{s} is {not}paid."),
    ),
    "book": (
        Field("title book name", names.title, ""),
        Field("author writer author_name", names.person, "{s} was written by {v}.|The author of {s} is {v}."),
        Field("year published", _whole(1900, 2030), "{s} appeared in {v}.|It was published in {v}."),
        Field("pages page_count", _whole(20, 990), "{s} has {v} pages.|It is {v} pages long."),
        Field("publisher", names.title, "The publisher is {v}."),
    ),
}  # fmt: skip

_SEEN = (
    "Extract the {kind} as JSON {shape}\n\n{text}",
    "Extract the information from the text as JSON {shape}\nText: {text}",
    "{text}\n\nAnswer with JSON {shape}",
    "{text}\nExtract JSON {shape}",
    "Read the text and return JSON {shape}\n\nText: {text}",
    "From this text: {text}\nMake JSON {shape}",
    "Turn this into JSON {shape}\n{text}",
)
_UNSEEN = (
    "Here is a text about a {kind}: {text}\nReply only with JSON {shape}",
    "Give me JSON {shape} for: {text}",
)
_SYSTEM_SEEN = (
    "Extract the data as JSON {shape}",
    "You turn texts into JSON {shape}",
    "You are a helpful AI assistant. Answer in JSON {shape}",
    "Reply only with JSON {shape}",
)
_SYSTEM_UNSEEN = ("Your only job is to write JSON {shape}",)


def extraction(draw: Draw) -> Exchange:
    """Make an exchange that asks for facts from a text as JSON.

    The prompt gives the shape of the JSON as an example, as a schema or as a list of keys.
    """
    kind = draw.pick(list(KINDS)) if draw.chance(0.75) else "record"
    text, facts = _made_up_record(draw) if kind == "record" else _described(draw, kind)
    keys = draw.sample(list(facts), draw.integer(min(2, len(facts)), min(4, len(facts))))
    wanted = {key: facts[key] for key in keys}
    shape = _shape(draw, wanted)
    reply: Message = {"role": "assistant", "content": json.dumps(wanted)}
    thought = f"The JSON has the keys {', '.join(keys)}. I find their values in the text."
    if draw.chance(0.25):
        system = draw.wording(_SYSTEM_SEEN, _SYSTEM_UNSEEN).format(shape=shape)
        return Exchange("json", ({"role": "user", "content": text}, reply), "", thought, system=system)
    question = draw.wording(_SEEN, _UNSEEN).format(kind=kind, shape=shape, text=text)
    return Exchange("json", ({"role": "user", "content": question}, reply), "", thought)


def _described(draw: Draw, kind: str) -> tuple[str, dict[str, Any]]:
    """Return sentences about one thing of a kind, and the facts that they state as {key: value}.

    The key of a fact is one of its field's `keys`.
    """
    about, *others = KINDS[kind]
    subject = about.make(draw)
    facts: dict[str, Any] = {draw.pick(about.keys.split()): subject}
    sentences: list[str] = []
    for field in draw.sample(others, draw.integer(2, min(5, len(others)))):
        value = field.make(draw)
        key = draw.pick([key for key in field.keys.split() if key not in facts] or [names.identifier(draw)])
        facts[key] = value
        named = f"Order {subject}" if kind == "order" else subject
        pronoun = "it" if kind != "person" else draw.pick(("he", "she"))
        sentences.append(field.sentence(named if not sentences or draw.chance(0.6) else pronoun, value, draw))
    if not any(subject in sentence for sentence in sentences):
        sentences.insert(0, f"This is about {subject}.")
    return " ".join(sentences), facts


def _made_up_record(draw: Draw) -> tuple[str, dict[str, Any]]:
    """Return a text with made-up keys and values, and these as {key: value}.

    The keys are meaningless: only the position in the text connects a value to its key.
    """
    makers = (
        names.word,
        names.person,
        names.city,
        names.title,
        names.code,
        _whole(0, 999),
        _price,
        names.day,
    )
    facts = {names.identifier(draw): draw.pick(makers)(draw) for _ in range(draw.integer(2, 5))}
    form, between = draw.pick((("{}: {}", "\n"), ("The {} is {}.", " "), ("{} = {}", ", "), ("{}: {}", "; ")))
    lines = [
        form.format(key.replace("_", " ") if draw.chance(0.5) else key, value) for key, value in facts.items()
    ]
    return between.join(lines), facts


def _shape(draw: Draw, wanted: dict[str, Any]) -> str:
    kind = draw.integer(0, 2)
    if kind == 0:
        blanks = {key: _BLANKS[type(value)] for key, value in wanted.items()}
        return f"{draw.pick(('like', 'of the form', 'in this shape:', 'such as'))} {json.dumps(blanks)}"
    if kind == 1:
        schema = _object_schema(draw, wanted)
        return f"{draw.pick(('with this schema:', 'that matches this schema:', 'of the schema'))} {json.dumps(schema)}"
    return f"with the keys {', '.join(wanted)}" + draw.pick((".", ":", ""))


def _object_schema(draw: Draw, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema of the wanted object, in the style of people or of pydantic."""
    properties = {key: json_schema(value) for key, value in wanted.items()}
    if draw.chance(0.3):
        titled = {
            key: {"title": key.replace("_", " ").title(), **schema} for key, schema in properties.items()
        }
        title = names.word(draw).capitalize()
        return {"properties": titled, "required": list(wanted), "title": title, "type": "object"}
    schema = {"type": "object", "properties": properties, "required": list(wanted)}
    return schema | {"additionalProperties": False} if draw.chance(0.3) else schema


def json_schema(value: Any) -> dict[str, Any]:
    """Return a JSON schema for the type of a value."""
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": JSON_TYPES[type(value)]}
