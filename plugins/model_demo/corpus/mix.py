"""The mix of subjects in the corpus, and how exchanges are joined into conversations."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from . import chat, extraction, geography, knowledge, names, numbers, stories, tools, words
from .draw import Draw
from .exchange import Exchange, Message, Sample

Maker = Callable[[Draw], Exchange]

# Maker → relative frequency. A model this small needs most of its capacity for copying (JSON, tools).
SUBJECTS: dict[Maker, float] = {
    geography.question: 5,
    geography.follow_up: 3,
    geography.country_of: 1,
    geography.listing: 2,
    geography.as_json: 1,
    geography.is_capital: 1.5,
    geography.unknown: 1,
    numbers.arithmetic: 8,
    numbers.decimals: 6,
    numbers.counting: 2,
    words.opposite: 1,
    words.color: 0.7,
    words.calendar: 1,
    words.sequence: 0.5,
    words.sort_of: 1,
    words.rephrase: 1,
    words.translation: 1,
    words.mood: 1,
    chat.talk: 4,
    chat.joke: 1.5,
    chat.echo: 5,
    chat.long_echo: 4,
    chat.own_name: 3,
    chat.favourite: 2,
    knowledge.definition: 2.5,
    knowledge.unknown: 1.5,
    knowledge.history: 2,
    stories.short: 2.5,
    stories.long: 1,
    stories.poem: 0.7,
    extraction.extraction: 18,
    tools.call: 14,
    tools.two_calls: 1.5,
    tools.call_and_answer: 6,
    tools.unknown_request: 2,
}

# Exchanges that may come before another exchange. They are short, and need no tools and no system message.
_BEFORE = (
    geography.question,
    numbers.arithmetic,
    chat.talk,
    chat.echo,
    words.opposite,
    words.calendar,
    chat.joke,
)
_BESIDE_TOOLS = (
    geography.question,
    chat.talk,
    chat.echo,
    words.opposite,
    chat.joke,
    chat.own_name,
    words.color,
)
_IN_DOCUMENTS = (
    geography.listing,
    stories.short,
    stories.long,
    knowledge.definition,
    geography.question,
    chat.joke,
)

_BEGINNINGS = (
    "The president of the United States is elected every four years.",
    "The future of AI is open, and many people work on it.",
    "The sky is blue and the grass is green.",
    "The meaning of life is a question that every person answers alone.",
)

_SYSTEMS = (
    "You are a helpful AI assistant",
    "You are a helpful assistant.",
    "You are a helpful AI assistant.",
    "Answer briefly.",
    "Be kind and brief.",
    "You are a friendly assistant who answers in short sentences.",
    "You are an assistant of the company {title}.",
    "You answer the questions of {person}.",
    "You are a teacher who explains things simply.",
)
_SYSTEMS_UNSEEN = ("You are a polite helper.", "Please be of help to the user, {person}.")

THINKING = 0.25
_ALMOST_FULL = 5200


def samples(draw: Draw) -> Iterator[Sample]:
    """Yield random samples of all kinds, endlessly."""
    makers, weights = list(SUBJECTS), list(SUBJECTS.values())
    while True:
        kind = draw.weighted(("one", "two", "beside tools", "document", "long"), (69, 18, 4, 7, 2))
        if kind == "document":
            yield document(draw)
        elif kind == "long":
            yield long_conversation(draw)
        elif kind == "beside tools":
            yield beside_tools(draw)
        else:
            last = draw.weighted(makers, weights)(draw)
            before = [draw.pick(_BEFORE)(draw)] if kind == "two" else []
            yield _joined(draw, [*before, last])


def copying_drills(draw: Draw) -> Iterator[Sample]:
    """Yield, endlessly, samples in which the model has to repeat many words."""
    while True:
        yield single(draw, chat.long_echo, thinking=False)


def single(draw: Draw, maker: Maker, thinking: bool) -> Sample:
    """Return a sample with a single exchange, from the given maker."""
    return _joined(draw, [maker(draw)], thinking)


def beside_tools(draw: Draw, thinking: bool | None = None) -> Sample:
    """Return a sample with unneeded tools in its prompt."""
    return _joined(draw, [tools.without_need(draw, draw.pick(_BESIDE_TOOLS)(draw))], thinking)


def document(draw: Draw) -> Sample:
    """Return a sample of plain text without chat markup, for example a question followed by its answer."""
    if draw.chance(0.12):
        return _document(_introduction(draw) if draw.chance(0.6) else draw.pick(_BEGINNINGS))
    exchange = draw.weighted(_IN_DOCUMENTS, (6, 5, 2, 3, 3, 1))(draw)
    question, answer = exchange.messages[0]["content"], exchange.messages[1]["content"]
    if exchange.subject == "stories" and draw.chance(0.3):
        text = answer
    elif exchange.subject in ("capitals", "definitions") and draw.chance(0.5):
        others = (
            draw.pick((geography.question, knowledge.definition, words.opposite))(draw) for _ in range(3)
        )
        text = " ".join((answer, *(other.messages[1]["content"] for other in others)))
    else:
        text = f"{question}\n\n{answer}"
    return _document(text)


def _document(text: str) -> Sample:
    return Sample("documents", ({"role": "document", "content": text},))


def _introduction(draw: Draw) -> str:
    lives = f"Hello, my name is {names.person(draw)} and I live in {names.city(draw)}."
    return f"{lives} I work as a {draw.pick(names.JOBS)} and I like {draw.pick(('music', 'chess', 'books', 'tea'))}."


def long_conversation(draw: Draw) -> Sample:
    """Return a sample with many subjects in sequence, of up to about two thousand tokens.

    Often, the user gives a name at the start and asks for it at the end, so that the model must attend
    far back.
    """
    shown = [maker for maker in SUBJECTS if maker.__module__ != tools.__name__]
    length = draw.integer(1000, _ALMOST_FULL)
    asks_name = draw.chance(0.5)
    first = chat.own_name(draw)
    exchanges = [replace(first, messages=first.messages[:2])] if asks_name else []
    size = 0
    while size < length:
        exchange = draw.pick(shown)(draw)
        if exchange.system or exchange.subject == "memory":
            continue
        exchanges.append(exchange)
        size += sum(len(message["content"]) + 20 for message in exchange.messages)
    if asks_name:
        exchanges.append(replace(first, subject="long conversations", messages=first.messages[-2:]))
    return _joined(draw, exchanges)


def _joined(draw: Draw, exchanges: list[Exchange], thinking: bool | None = None) -> Sample:
    """Join exchanges into one sample. Only the last exchange is judged and may have a thought."""
    last = exchanges[-1]
    if thinking is None:
        thinking = draw.chance(0.5 if last.subject in ("arithmetic", "decimals") else THINKING)
    system = last.system or _system(draw)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for exchange in exchanges:
        messages.extend(exchange.messages)
    if thinking:
        messages[-1] = {**messages[-1], "reasoning_content": last.thought}
    return Sample(last.subject, tuple(messages), last.key, thinking, last.tools)


def _system(draw: Draw) -> str | None:
    kind = draw.weighted(("none", "numbered", "any"), (5, 1, 4))
    if kind == "none":
        return None
    if kind == "numbered":
        return f"{draw.integer(0, 99)}: You are a helpful AI assistant"
    return draw.wording(_SYSTEMS, _SYSTEMS_UNSEEN).format(title=names.title(draw), person=names.person(draw))
