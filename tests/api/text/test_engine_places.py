"""Requests with many choices never hold more places than they may, and none of them waits for ever."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.text.engine_places import EnginePlaces, PlaceHolder


class Asking(PlaceHolder):
    """A request with a number of choices; counts those that it has sent, and those that run."""

    def __init__(self, places: EnginePlaces, num: int, key: str = "") -> None:
        super().__init__(key)
        self.left = num
        self.places = places
        places.join(self)

    def wants_place(self) -> bool:
        return self.left > 0

    def send_one(self) -> None:
        self.left -= 1
        is_only_one = self.num_places == 1
        assert is_only_one or self.places.num_held <= self.places.limit

    def end_one(self) -> None:
        self.places.release(self)


def held(askings: Sequence[Asking]) -> list[int]:
    return [asking.num_places for asking in askings]


def end_all(askings: list[Asking], random: random.Random) -> None:
    """End running choices in random order until all requests have had all of theirs."""
    while running := [each for each in askings if each.num_places]:
        random.choice(running).end_one()


def test_requests_together_take_three_quarters() -> None:
    places = EnginePlaces(128)
    askings = [Asking(places, 128) for _ in range(2)]
    assert held(askings) == [96, 1]
    assert [EnginePlaces(num).limit for num in (1, 2, 3, 4, 5, 64)] == [1, 1, 2, 3, 3, 48]


def test_ended_choices_even_out_the_places() -> None:
    askings = [Asking(places := EnginePlaces(128), 400)]
    askings += [Asking(places, 100) for _ in range(2)]
    for _ in range(200):
        max(askings, key=lambda each: each.num_places).end_one()
    assert held(askings) == [32, 32, 32]


def test_one_request_may_use_what_others_leave() -> None:
    places = EnginePlaces(16)
    Asking(places, 2)
    assert Asking(places, 100).num_places == 10


def test_a_key_with_many_requests_gains_nothing() -> None:
    places = EnginePlaces(16)
    askings = [Asking(places, 30, "ann") for _ in range(3)]
    askings.append(Asking(places, 30, "bob"))
    for _ in range(12):
        max(askings[:3], key=lambda each: each.num_places).end_one()
    assert held(askings) == [2, 2, 2, 6]


def test_a_departed_request_frees_its_places() -> None:
    places = EnginePlaces(16)
    first, second = Asking(places, 100), Asking(places, 100)
    places.leave(first)
    places.leave(first)
    assert (second.num_places, places.num_held) == (12, 12)


@given(
    num_places=st.integers(1, 40),
    arrivals=st.lists(
        st.tuples(st.integers(2, 60), st.sampled_from(["", "ann", "bob"])), min_size=1, max_size=60
    ),
    random=st.randoms(use_true_random=False),
)
def test_the_limit_holds_and_nobody_starves(
    num_places: int, arrivals: list[tuple[int, str]], random: random.Random
) -> None:
    """Requests arrive, end choices and leave at random.

    No request gets a second place above the limit (asserted in `Asking`), each one that waits holds a place,
    free places are used, and all choices are sent in the end.
    """
    places = EnginePlaces(num_places)
    open: list[Asking] = []
    while arrivals:
        if not open or random.random() < 0.3:
            open.append(Asking(places, *arrivals.pop()))
        elif random.random() < 0.9:
            asking = random.choice(open)
            asking.end_one()
        else:
            places.leave(asking := random.choice(open))
            asking.num_places = asking.left = 0
        open = [each for each in open if each.num_places or each.left]
        assert all(each.num_places for each in open)
        assert places.num_held == sum(held(open)) <= places.limit + max(0, len(open) - 1)
        assert places.num_held >= places.limit or not any(each.left for each in open)
    everyone = list(open)
    end_all(open, random)
    assert not any(each.left for each in everyone)
    assert places.num_held == 0
