"""Exchanges that call tools whose schemas are in the prompt, and answer from the tools' results."""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import names
from .draw import Draw
from .exchange import Exchange, Message, Tool, asked, called
from .extraction import json_schema

Values = dict[str, Any]
Make = Callable[[Draw], Any]


@dataclass(frozen=True)
class Action:
    """Something that a tool can do, with several possible names and wordings.

    Attributes:
        verbs, nouns: possible words of the tool's name, separated by spaces.
        description: description in the tool's schema.
        takes: possible names of each parameter, separated by spaces → function that makes a random value.
        requests: wordings of a user's request; `{0}` is the first parameter's value.
        unseen: wordings that training never uses.
        returns: key in the tool's result → function that makes a random value.
    """

    verbs: str
    nouns: str
    description: str
    takes: dict[str, Make]
    requests: tuple[str, ...]
    unseen: tuple[str, ...]
    returns: dict[str, Make]


def _whole(low: int, high: int) -> Make:
    return lambda draw: draw.integer(low, high)


def _one_of(*options: str) -> Make:
    return lambda draw: draw.pick(options)


def _phrase(draw: Draw) -> str:
    return " ".join(
        names.word(draw) if draw.chance(0.5) else draw.pick(names.THINGS) for _ in range(draw.integer(1, 3))
    )


def _clock(draw: Draw) -> str:
    return f"{draw.integer(0, 23):02}:{draw.integer(0, 59):02}"


def _ticker(draw: Draw) -> str:
    return draw.fresh(
        lambda: "".join(draw.pick("ABCDEFGHIKLMNOPRSTUVWXYZ") for _ in range(draw.integer(3, 4)))
    )


ACTIONS = (
    Action("get fetch check lookup current show get_current", "weather forecast weather_report", "Get the weather in a city.",
           {"city location place town": names.city},
           ("What is the weather in {0}?", "What is the weather like in {0}?", "How is the weather in {0}?",
            "Weather in {0}?", "What's the weather like in {0} today?", "Tell me the weather in {0}."),
           ("Is it sunny in {0}?", "How warm is it in {0} right now?"),
           {"temperature": _whole(-10, 38), "condition": _one_of("sunny", "cloudy", "rainy", "windy", "snowy")}),
    Action("get fetch current show", "time local_time clock", "Get the current time in a city.",
           {"city location timezone place": names.city},
           ("What time is it in {0}?", "Tell me the time in {0}.", "What is the time in {0}?", "Time in {0}?"),
           ("How late is it in {0}?",), {"time": _clock}),
    Action("get fetch lookup find", "stock_price stock share_price quote", "Get the price of a stock.",
           {"symbol ticker stock": _ticker},
           ("What is the stock price of {0}?", "How much is a share of {0}?", "Price of the stock {0}?"),
           ("What does a {0} share cost?",), {"price": _whole(2, 900), "currency": _one_of("USD", "EUR")}),
    Action("add sum compute", "numbers two_numbers", "Add two numbers.",
           {"a x first": _whole(0, 999), "b y second": _whole(0, 999)},
           ("Add {0} and {1}.", "What is the sum of {0} and {1}?", "Add the numbers {0} and {1}."),
           ("Sum up {0} and {1}.",), {"result": _whole(0, 1998)}),
    Action("multiply compute", "numbers product", "Multiply two numbers.",
           {"a x first": _whole(0, 999), "b y second": _whole(0, 999)},
           ("Multiply {0} by {1}.", "What is the product of {0} and {1}?", "Multiply {0} and {1}."),
           ("Find {0} multiplied by {1}.",), {"result": _whole(0, 9999)}),
    Action("send write", "email mail message", "Send a message to a person.",
           {"to recipient receiver": names.email, "text body message": _phrase},
           ("Send an email to {0} saying {1}", "Write a mail to {0} with the text {1}", "Send {0} the message {1}"),
           ("Mail {0} the text {1}",), {"status": _one_of("sent", "queued")}),
    Action("search find web lookup", "web search query", "Search the web.",
           {"query text q": _phrase},
           ("Search the web for {0}", "Search for {0}", "Look up {0} on the web", "Find {0} online"),
           ("Please look on the internet for {0}",), {"title": names.title, "hits": _whole(1, 999)}),
    Action("set create add", "alarm timer wake_up", "Set an alarm.",
           {"time at clock": _clock},
           ("Set an alarm for {0}.", "Wake me up at {0}.", "Set my alarm to {0}."), ("I need an alarm at {0}.",),
           {"status": _one_of("set", "saved")}),
    Action("play start", "music song track", "Play a song.",
           {"title song name": names.title},
           ("Play {0}.", "Play the song {0}.", "Put on {0}.", "I want to hear {0}."), ("Please play me {0}.",),
           {"status": _one_of("playing", "started")}),
    Action("create add schedule", "event meeting appointment", "Create an event in the calendar.",
           {"title name event": names.title, "date day": names.day},
           ("Create an event {0} on {1}.", "Add {0} to my calendar on {1}.", "Schedule {0} for {1}."),
           ("Put {0} into the calendar for {1}.",), {"status": _one_of("created", "saved"), "id": names.code}),
    Action("get find lookup track", "order order_status shipment", "Get the status of an order.",
           {"order_id id number": names.code},
           ("Where is my order {0}?", "What is the status of order {0}?", "Track order {0}."),
           ("Has order {0} arrived?",), {"status": _one_of("shipped", "delivered", "pending"), "days": _whole(1, 9)}),
    Action("convert exchange", "currency money", "Convert an amount of money.",
           {"amount value": _whole(1, 999), "from source from_currency": _one_of("USD", "EUR", "GBP", "JPY"),
            "to target to_currency": _one_of("CHF", "SEK", "INR", "CAD")},
           ("Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}."),
           ("What are {0} {1} worth in {2}?",), {"result": _whole(1, 9999)}),
    Action("find get lookup", "person user contact employee", "Find a person by name.",
           {"name person_name who": names.person},
           ("Find the contact of {0}.", "Look up the person {0}.", "Who is {0}?", "Find the user {0}."),
           ("Give me the contact data of {0}.",), {"email": names.email, "city": names.city}),
    Action("book reserve", "table restaurant", "Book a table in a restaurant.",
           {"restaurant name place": names.title, "guests people seats": _whole(1, 12)},
           ("Book a table at {0} for {1} people.", "Reserve {0} for {1} people.", "A table for {1} people at {0}, please."),
           ("Get us a table at {0}, we are {1}.",), {"confirmed": lambda draw: draw.chance(0.7), "id": names.code}),
)  # fmt: skip

_MADE_UP_VERBS = (
    "inspect open close start stop paint update delete rename measure repair clean move count check".split()
)
_MADE_UP_TAKES: dict[str, Make] = {
    "name": names.person, "size": _whole(1, 500), "color": lambda draw: draw.pick(names.COLORS), "city": names.city,
    "level": _whole(0, 20), "code": names.code, "date": names.day, "label": names.word, "count": _whole(1, 99),
    "owner": names.first_name, "title": names.title,
}  # fmt: skip


def _made_up_action(draw: Draw) -> Action:
    """Return a made-up action, which the model cannot know from training but only from the tool's schema."""
    verb, noun = draw.pick(_MADE_UP_VERBS), names.word(draw)
    keys = draw.sample(list(_MADE_UP_TAKES), draw.integer(1, 3))
    if draw.chance(0.3):
        keys[0] = names.word(draw)
    takes = {key: _MADE_UP_TAKES.get(key, names.word) for key in keys}
    told = " and ".join(f"{key} {{{position}}}" for position, key in enumerate(keys))
    return Action(verb, noun, f"{verb.capitalize()} a {noun}.", takes,
                  (f"{verb.capitalize()} the {noun} with {told}.", f"Please {verb} the {noun} with {told}."),
                  (f"I want you to {verb} the {noun} with {told}.",),
                  {draw.pick(("status", "result", "state")): names.word})  # fmt: skip


_EXPLAINED = ("The {}", "The {} to use", "{}", "Which {} it is", "The {}, e.g. Berlin")
# Optional parameters, which no request mentions and no call contains.
_OPTIONAL = (
    ("unit", {"type": "string", "enum": ["celsius", "fahrenheit"]}),
    ("language", {"type": "string", "description": "The language of the answer"}),
    ("verbose", {"type": "boolean"}),
    ("limit", {"type": "integer", "description": "How many at most"}),
)


@dataclass(frozen=True)
class Offer:
    """One tool as a prompt presents it: an action with concrete tool and parameter names."""

    action: Action
    name: str
    parameters: dict[str, Make]

    def values(self, draw: Draw) -> Values:
        return {key: make(draw) for key, make in self.parameters.items()}

    def schema(self, draw: Draw) -> Tool:
        properties: dict[str, Any] = {key: json_schema(make(draw)) for key, make in self.parameters.items()}
        if draw.chance(0.4):
            for key, property_schema in properties.items():
                property_schema["description"] = draw.pick(_EXPLAINED).format(key.replace("_", " "))
        required = list(properties)
        if draw.chance(0.25):
            key, optional = draw.pick(_OPTIONAL)
            properties[key] = optional
        parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        if draw.chance(0.2):
            parameters["additionalProperties"] = False
        function: dict[str, Any] = {
            "name": self.name,
            "description": self.action.description,
            "parameters": parameters,
        }
        if draw.chance(0.1):
            function["strict"] = True
        return {"type": "function", "function": function}


def offer(draw: Draw, action: Action) -> Offer:
    keys = (draw.pick(names_.split()) for names_ in action.takes)
    return Offer(
        action,
        draw.fresh(lambda: _tool_name(draw, action)),
        dict(zip(keys, action.takes.values(), strict=True)),
    )


def _tool_name(draw: Draw, action: Action) -> str:
    verb, noun = draw.pick(action.verbs.split()), draw.pick(action.nouns.split())
    mark = draw.pick(("", "", f"_{names.word(draw)}", "_v2", "_tool", "_api"))
    words = f"{verb}_{noun}{mark}".split("_")
    if draw.chance(0.2):
        return words[0] + "".join(word.capitalize() for word in words[1:])
    return "_".join(words)


def offers(draw: Draw, count: int) -> list[Offer]:
    """Return tools for `count` different actions, in random order."""
    known = draw.sample(ACTIONS, count)
    return [offer(draw, _made_up_action(draw) if draw.chance(0.35) else action) for action in known]


def call(draw: Draw) -> Exchange:
    """Make a request that one of the tools can serve. The reply is the call."""
    available, request, arguments = _requested(draw)
    chosen = available[0]
    turns: tuple[Message, ...] = ({"role": "user", "content": request}, called(chosen.name, arguments))
    return Exchange("tool calls", turns, "", f"The tool {chosen.name} fits this.", _schemas(draw, available))


def two_calls(draw: Draw) -> Exchange:
    """Make a request for the same information about two cities. The reply is two calls."""
    chosen = offer(draw, draw.pick(ACTIONS[:2]))
    cities = [names.city(draw), names.city(draw)]
    (key,) = chosen.parameters
    first, second = (called(chosen.name, {key: city}) for city in cities)
    reply = first | {"tool_calls": first["tool_calls"] + second["tool_calls"]}
    request = _request(draw, chosen.action, {key: " and ".join(cities)})
    thought = f"I call {chosen.name} once for each city."
    return Exchange(
        "tool calls", ({"role": "user", "content": request}, reply), "", thought, _schemas(draw, [chosen])
    )


def call_and_answer(draw: Draw) -> Exchange:
    """Make a request that a tool can serve, the call, and the tool's result.

    The reply states the result in words.
    """
    available, request, arguments = _requested(draw)
    chosen = available[0]
    result = {key: make(draw) for key, make in chosen.action.returns.items()}
    if draw.chance(0.15):
        content = said = f"{' and '.join(str(value) for value in result.values())}."
    elif draw.chance(0.1):
        content, said = json.dumps({"error": f"no {names.word(draw)}"}), "The tool failed."
    else:
        content, said = json.dumps(result), _in_words(result)
    turns: tuple[Message, ...] = (
        {"role": "user", "content": request},
        called(chosen.name, arguments),
        {"role": "tool", "content": content},
        {"role": "assistant", "content": said},
    )
    return Exchange(
        "tool results", turns, said, "The tool has answered. I say it in words.", _schemas(draw, available)
    )


def without_need(draw: Draw, exchange: Exchange) -> Exchange:
    """Return an exchange with unneeded tools in its prompt."""
    tools = tuple(offered.schema(draw) for offered in offers(draw, draw.integer(1, 2)))
    thought = f"No tool is needed here. {exchange.thought}"
    return replace(exchange, subject="no tool needed", tools=tools, thought=thought)


def unknown_request(draw: Draw) -> Exchange:
    """Make a request that none of the tools in the prompt can serve."""
    wanted, *others = offers(draw, draw.weighted((2, 3), (3, 1)))
    request = _request(draw, wanted.action, wanted.values(draw))
    tools = tuple(offered.schema(draw) for offered in others)
    answer = "I have no tool for that."
    return asked("no tool needed", request, answer, answer, "None of the tools fits this.", tools=tools)


def _requested(draw: Draw) -> tuple[list[Offer], str, Values]:
    """Return tools, a request that the first of them serves, and the arguments in the request."""
    available = offers(draw, draw.weighted((1, 2, 3, 4), (8, 8, 3, 1)))
    arguments = available[0].values(draw)
    return available, _request(draw, available[0].action, arguments), arguments


def _request(draw: Draw, action: Action, arguments: Values) -> str:
    return draw.wording(action.requests, action.unseen).format(*arguments.values())


def _schemas(draw: Draw, available: list[Offer]) -> tuple[Tool, ...]:
    schemas = [offered.schema(draw) for offered in available]
    return tuple(draw.sample(schemas, len(schemas)))


def _in_words(result: Values) -> str:
    parts = [f"the {key.replace('_', ' ')} is {str(value).lower() if value is True or value is False else value}"
             for key, value in result.items()]  # fmt: skip
    said = " and ".join(parts)
    return f"{said[0].upper()}{said[1:]}."
