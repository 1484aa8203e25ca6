"""Exchanges with short and long stories and poems, assembled from sentences that fit together."""

# ruff: noqa: SIM905 - a list of words reads better as one line of text

from . import names
from .draw import Draw
from .exchange import Exchange, asked

# hero | place | object of the quest | friend
_HEROES = """
space explorer|a far planet|a signal among the stars|a small robot
robot|a quiet factory|a spare battery|an old engineer
dragon|a high mountain|a lost golden egg|a brave girl
baker|a small village|the perfect bread|a clever mouse
sailor|a stormy sea|a hidden island|a talking parrot
young wizard|a dark forest|a forgotten spell|a grey owl
lighthouse keeper|a lonely coast|a missing ship|an old fisherman
detective|a large city|a stolen painting|a curious child
gardener|a wild garden|a blue rose|a friendly snail
princess|a tall castle|the key to the tower|a kind knight
programmer|a busy office|a very small bug|a patient cat
painter|an old town|a new color|a shy musician
knight|a deep valley|a broken sword|a wise horse
cat|a sunny street|a warm place to sleep|a lazy dog
teacher|a mountain school|a book that nobody had read|a quiet student
pilot|a wide desert|a lost city|a desert fox
"""
HEROES = [tuple(line.split("|")) for line in _HEROES.strip().splitlines()]
_TOPICS = (
    "topic|friendship|the sea|time|music|winter|courage|a journey|the moon|a lost letter|hope|dreams|the forest|"
    "a secret door|an old clock|rain|a river|the stars|home|a strange machine|magic|a small town"
).split("|")

_OPENINGS = (
    "Once upon a time there was a {who} named {name} who lived near {place}.",
    "{name} was a {who} who had always dreamed of {place}.",
    "Far away, near {place}, lived a {who} named {name}.",
)
_WISHES = (
    "Every day {name} thought about {quest}.",
    "More than anything, {name} wanted to find {quest}.",
    "One morning {name} heard about {quest} and could not forget it.",
)
_DEPARTURES = (
    "So {name} packed a bag and set out at dawn.",
    "One cold morning {name} left home and did not look back.",
    "With a brave heart {name} began the long journey.",
)
_MEETINGS = (
    "On the way {name} met {friend}, and they became friends.",
    "After three days {friend} came along and offered to help.",
    "There {name} found {friend}, who knew the way.",
)
_TROUBLES = (
    "Then a great storm came, and they had to hide until the morning.",
    "The road was long, and at night they heard strange sounds.",
    "A deep river lay before them, and there was no bridge.",
    "They lost the way twice, but they did not give up.",
    "The map was torn, so they followed the stars.",
    "They were hungry and tired, yet they went on together.",
    "An old gate was closed, and only a riddle could open it.",
    "A thick fog hid the path, and they held hands to stay together.",
)
_TURNS = (
    "At last, when the sun rose, they saw it: {quest}.",
    "In the end it was {friend} who found {quest}.",
    "And there, right in front of {name}, was {quest}.",
)
_ENDINGS = (
    "{name} went home happy and told the story to everyone who wanted to hear it.",
    "From that day on {name} was never lonely again.",
    "{name} smiled, for the best part of the journey had been the friend.",
)
_VERSES = (
    ("I think of {topic} every day,", "it never seems to go away.", "And when the night is cold and long,", "{topic} is still my song."),
    ("Oh {topic}, so quiet and so bright,", "you keep me company at night.", "And when the morning comes to me,", "{topic} is all I see."),
    ("They asked me what I love the best,", "{topic}, I said, above the rest.", "It makes me smile, it makes me sing,", "and that is such a lovely thing."),
)  # fmt: skip
_SHORT_SEEN = ("Write a short story about a {}.", "Tell me a short story about a {}.", "Write a story about a {}.",
               "Tell me a story about a {}.", "A short story about a {}, please.", "write a short story about a {}")  # fmt: skip
_LONG_SEEN = ("Write a detailed story about {}. Make it very long.", "Write a long story about {}.",
              "Tell me a very long story about {}.", "Write a detailed story about {}.")  # fmt: skip


def short(draw: Draw) -> Exchange:
    hero = draw.weighted(HEROES, [4] + [1] * (len(HEROES) - 1))
    question = draw.wording(_SHORT_SEEN, ("Could you write me a short story about a {}?",)).format(hero[0])
    answer = " ".join(_parts(draw, hero, troubles=1))
    return asked("stories", question, answer, hero[0], f"I think of a {hero[0]} and a short journey.")


def long(draw: Draw) -> Exchange:
    hero = draw.pick(HEROES)
    topic = draw.pick(_TOPICS) if draw.chance(0.8) else f"a {hero[0]}"
    question = draw.wording(_LONG_SEEN, ("I would like a long story about {}.",)).format(topic)
    parts = _parts(draw, hero, troubles=draw.integer(5, 8))
    chapters = ["\n\n".join((f"This is a story about {topic}.", " ".join(parts[:3])))]
    chapters += [_chapter(draw, hero, trouble) for trouble in parts[3:-2]] + [" ".join(parts[-2:])]
    thought = f"The story is about {topic} and should be long. I make many parts."
    return asked("stories", question, "\n\n".join(chapters), topic, thought)


def poem(draw: Draw) -> Exchange:
    """Make a request for a poem. The reply is a poem of two rhyming couplets."""
    topic = draw.pick(_TOPICS) if draw.chance(0.7) else f"a {names.word(draw)}"
    seen = (
        "Write a poem about {}.",
        "Write a short poem about {}.",
        "A poem about {}, please.",
        "Tell me a poem about {}.",
    )
    question = draw.wording(seen, ("I would love a poem about {}.",)).format(topic)
    answer = "\n".join(draw.pick(_VERSES)).format(topic=topic)
    return asked("poems", question, answer, topic, f"The poem is about {topic}. I write four lines.")


def _parts(draw: Draw, hero: tuple[str, ...], troubles: int) -> list[str]:
    who, place, quest, friend = hero
    middle = draw.sample(_TROUBLES, troubles)
    lines = [draw.pick(part) for part in (_OPENINGS, _WISHES, _DEPARTURES, _MEETINGS)]
    lines += [*middle, draw.pick(_TURNS), draw.pick(_ENDINGS)]
    name = names.first_name(draw)
    told = [line.format(who=who, place=place, quest=quest, friend=friend, name=name) for line in lines]
    return [line[0].upper() + line[1:] for line in told]


def _chapter(draw: Draw, hero: tuple[str, ...], trouble: str) -> str:
    after = draw.pick(
        (
            f"It was not easy, but {hero[3]} had a good idea.",
            "They laughed about it later, but not that day.",
            f"Even so, the thought of {hero[2]} gave them strength.",
            "When it was over they rested under a tree and shared their bread.",
        )
    )
    return f"{trouble} {after}"
