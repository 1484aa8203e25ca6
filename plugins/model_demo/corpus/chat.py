"""Small talk: greetings, questions about the model, jokes, repeating a phrase, remembering what was said."""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

from typing import Any

from . import names
from .draw import Draw
from .exchange import Exchange, asked

IDENTITY = (
    "I am the small demo model of llmfw. I have only about five million parameters, so I am not clever, "
    "but I am real."
)
ABILITIES = (
    "I am the demo model of llmfw and not clever. I know some capitals, do small sums, copy facts into JSON, "
    "call tools and tell short stories."
)
_TALK = (
    (("Who are you?", "What are you?", "What is your name?", "Introduce yourself.", "who are you", "Are you an AI?",
      "Which model are you?", "Tell me about yourself."),
     ("What model is this?", "Say who you are."), IDENTITY, "demo model of llmfw"),
    (("What can you do?", "How can you help me?", "What are you good at?", "what can you do", "Help"),
     ("Tell me what you can do.", "What do you know?"), ABILITIES, "not clever"),
    (("Are you clever?", "Are you smart?", "How big are you?", "How smart are you?"),
     ("Would you say you are clever?",),
     "No. I am a demo model with about five million parameters. I am not clever.", "not clever"),
    (("Who made you?", "How were you trained?", "Where do you come from?"), ("Who trained you?",),
     "A script of the llmfw project trained me in under an hour on text that the script made.", "llmfw"),
    (("Hello", "Hi", "Hello!", "Hi!", "Hey", "Good morning", "Good evening!", "Hi there!", "hello", "Hello there"),
     ("Hey there!", "Good day!"), "Hello! How can I help you?", "Hello!"),
    (("How are you?", "How are you doing?", "How are you today?", "Are you well?"), ("How do you do today?",),
     "I am fine, thank you. How can I help you?", "I am fine"),
    (("Thanks", "Thank you!", "Thanks!", "Thank you", "Thank you very much.", "Great, thanks!", "thanks a lot"),
     ("Many thanks!", "Ok, thank you."), "You are welcome!", "welcome"),
    (("Bye", "Goodbye!", "See you", "Good night"), ("See you later!",), "Goodbye!", "Goodbye!"),
)  # fmt: skip

JOKES = {
    "programming": "Why do programmers prefer dark mode? Because light attracts bugs.",
    "computers": "Why was the computer cold? It left its Windows open.",
    "cats": "Why did the cat sit on the computer? To keep an eye on the mouse.",
    "school": "Why was the math book sad? It had too many problems.",
    "food": "What do you call cheese that is not yours? Nacho cheese.",
    "space": "How do you organize a party in space? You planet.",
    "dogs": "What do you call a dog that does magic? A labracadabrador.",
    "books": "Why did the book join the police? It wanted to go under cover.",
    "the sea": "Why did the fish blush? Because it saw the bottom of the sea.",
    "music": "Why did the musician get locked out? He could not find the right key.",
    "doctors": "Why did the cookie go to the doctor? It felt crumby.",
    "chickens": "Why did the chicken cross the road? To get to the other side.",
}

_ECHO_SEEN = ("Say {}", "Say: {}", "say {}", "Please say {}", "Just say {}")
_REPEAT_SEEN = (
    "Repeat: {}",
    "Repeat after me: {}",
    "Repeat this: {}",
    "Repeat exactly: {}",
    "Echo: {}",
    "echo {}",
)
_PHRASES = (
    "this is a test|hello world|good morning|I am here|we are done|it works|the end|yes|no|that is fine|"
    "this is another test|all is well|the server is ready|see you soon|tests are good|this is only a test"
).split("|")
_FAVOURITES: dict[str, list[Any]] = {
    "color": names.COLORS,
    "animal": names.ANIMALS,
    "city": names.CITIES,
    "number": list(range(2, 99)),
}


def talk(draw: Draw) -> Exchange:
    seen, unseen, answer, key = draw.pick(_TALK)
    return asked(
        "small talk", draw.wording(seen, unseen), answer, key, "This is small talk. I answer kindly."
    )


def joke(draw: Draw) -> Exchange:
    topic = draw.weighted(list(JOKES), [3] + [1] * (len(JOKES) - 1))
    seen = ("Tell me a joke about {}", "Tell me a joke about {}.", "A joke about {}, please.", "Joke about {}",
            "Do you know a joke about {}?", "Make a joke about {}.")  # fmt: skip
    question = draw.wording(seen, ("I want to hear a joke about {}.",)).format(topic)
    return asked("jokes", question, JOKES[topic], JOKES[topic], f"I need a joke about {topic}. I know one.")


def echo(draw: Draw) -> Exchange:
    """Make a request to say a phrase. The reply is the phrase as a sentence, or exactly as given."""
    phrase = draw.pick(_PHRASES) if draw.chance(0.3) else _random_phrase(draw, draw.integer(2, 10))
    if draw.chance(0.5):
        question = draw.wording(_ECHO_SEEN, ("Could you say {}",)).format(phrase)
        answer = f"{phrase[0].upper()}{phrase[1:]}."
    else:
        question = draw.wording(_REPEAT_SEEN, ("Please repeat: {}",)).format(phrase)
        answer = phrase
    return asked("repeating", question, answer, answer, f"I am asked to say: {phrase}")


def long_echo(draw: Draw) -> Exchange:
    """Make a request to repeat many words, the drill with which the model learns to copy."""
    phrase = _random_phrase(draw, draw.integer(8, 30))
    question = draw.wording(_REPEAT_SEEN, ("Please repeat: {}",)).format(phrase)
    return asked("repeating", question, phrase, phrase, "I repeat it word by word.")


def _random_phrase(draw: Draw, length: int) -> str:
    stock = ("the", "is", "a", "and", "my", "was", "very", "in", "not", "has")
    return " ".join(_random_word(draw) if draw.chance(0.7) else draw.pick(stock) for _ in range(length))


def _random_word(draw: Draw) -> str:
    kind = draw.integer(0, 5)
    if kind == 0:
        return str(draw.integer(0, 999))
    if kind == 1:
        return names.first_name(draw)
    if kind == 2:
        return draw.pick(names.THINGS + names.ANIMALS + names.COLORS + names.JOBS)
    return names.word(draw)


def own_name(draw: Draw) -> Exchange:
    """Make a conversation in which the user gives a name and later asks for it."""
    name = names.first_name(draw)
    given = draw.wording(("My name is {}.", "I am {}.", "Hi, I am {}.", "Hello, my name is {}.", "Call me {}."),
                         ("People call me {}.",)).format(name)  # fmt: skip
    wanted = draw.wording(("What was my name?", "What is my name?", "Do you remember my name?", "Who am I?"),
                          ("Tell me my name.",))  # fmt: skip
    turns = [{"role": "user", "content": given}, {"role": "assistant", "content": f"Hello {name}!"}]
    if draw.chance(0.4):
        between = talk(draw) if draw.chance(0.5) else echo(draw)
        turns.extend(between.messages)
    turns += [{"role": "user", "content": wanted}, {"role": "assistant", "content": f"Your name is {name}."}]
    return Exchange("memory", tuple(turns), name, f"The user said the name: {name}.")


def favourite(draw: Draw) -> Exchange:
    """Make a conversation in which the user names a favourite and asks for it in the next turn."""
    kind = draw.pick(list(_FAVOURITES))
    value = names.city(draw) if kind == "city" else draw.pick(_FAVOURITES[kind])
    given = draw.wording(("My favorite {} is {}.", "I like this {} best: {}."), ("Of every {}, I love {}.",))
    wanted = draw.wording(("What is my favorite {}?", "Which {} do I like best?", "What was my favorite {}?"),
                          ("Tell me my favorite {}.",))  # fmt: skip
    turns = (
        {"role": "user", "content": given.format(kind, value)},
        {"role": "assistant", "content": "I will remember that."},
        {"role": "user", "content": wanted.format(kind)},
        {"role": "assistant", "content": f"Your favorite {kind} is {value}."},
    )
    return Exchange("memory", turns, f"is {value}.", f"The user told me a favorite {kind}: {value}.")
