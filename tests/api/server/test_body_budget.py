"""Memory for bodies is shared among owners, and slow bodies give theirs up."""

from __future__ import annotations

import random

from llmfw.api.server.body_budget import SLOW_BYTES, SLOW_S, Body, BodyBudget


class Rig:
    def __init__(self, most: int) -> None:
        self.now = 0.0
        self.budget = BodyBudget(most, lambda: self.now)
        self.evicted: list[str] = []

    def begin(self, owner: str, size: int) -> Body:
        body = self.budget.begin(owner, lambda: self.evicted.append(owner))
        assert self.budget.grow(body, size)
        return body


def test_the_largest_client_is_evicted_first():
    rig = Rig(10)
    bodies = [rig.begin("eve", 4), rig.begin("eve", 4)]
    rig.begin("bob", 4)
    assert rig.evicted == ["eve"]
    assert not rig.budget.grow(bodies[0], 5)
    assert rig.budget.grow(bodies[1], 5)


def test_the_largest_client_evicts_no_other():
    rig = Rig(10)
    first, _ = rig.begin("eve", 4), rig.begin("bob", 4)
    assert not rig.budget.grow(rig.budget.begin("eve", rig.evicted.clear), 3)
    assert rig.evicted == []
    assert rig.budget.grow(first, 6)


def test_slow_bodies_are_evicted_first():
    rig = Rig(10 * SLOW_BYTES)
    slow = rig.begin("bob", 4 * SLOW_BYTES)
    rig.now += SLOW_S / 2
    rig.begin("eve", 5 * SLOW_BYTES)
    rig.now += SLOW_S / 2 + 0.1
    assert rig.budget.grow(slow, 4 * SLOW_BYTES + 1)
    rig.begin("eve", 2 * SLOW_BYTES)
    assert rig.evicted == ["bob"]


def test_complete_bodies_are_never_evicted():
    rig = Rig(10)
    rig.begin("eve", 8).is_whole = True
    rig.now += 2 * SLOW_S
    assert not rig.budget.grow(rig.budget.begin("bob", rig.evicted.clear), 4)
    assert rig.evicted == []


def test_the_budget_is_kept_and_fully_returned():
    rng, rig = random.Random(1), Rig(1000)
    open_bodies: list[Body] = []
    for _ in range(5000):
        rig.now += rng.random()
        if rng.random() < 0.3:
            open_bodies.append(rig.budget.begin(rng.choice("abc"), lambda: None))
        elif open_bodies:
            body = rng.choice(open_bodies)
            if rng.random() < 0.2 or not rig.budget.grow(body, body.size + rng.randrange(300)):
                rig.budget.end(body)
                open_bodies.remove(body)
        assert sum(body.size for body in rig.budget._bodies) == rig.budget._used <= 1000
    for body in open_bodies:
        rig.budget.end(body)
    assert rig.budget._used == 0
