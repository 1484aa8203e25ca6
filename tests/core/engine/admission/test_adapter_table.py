"""Adapters keep their places while requests use them, and no place is lost."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmfw.core.base.adapter_salt import salt_parts
from llmfw.core.base.errors import ConflictError, ModelNotFoundError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.admission.adapter_table import AdapterTable

NUM_PLACES = 3
NAMES = st.sampled_from("abcd")


def request(id: str, adapter: str, salt: str = "") -> Request:
    return Request(id=id, prompt=[1], sampling=SamplingParams(), adapter=adapter, cache_salt=salt)


def add(table: AdapterTable, name: str, version: int) -> int:
    return table.add(name, "/x", version, 8, f"digest {version}").place


def test_requests_keep_the_version_they_came_with() -> None:
    table = AdapterTable(2)
    first = add(table, "a", 1)
    table.enter(request("r", "a"))
    second = add(table, "a", 2)
    table.enter(request("s", "a"))
    assert first != second
    assert [table.number_of(id) for id in "rst"] == [first + 1, second + 1, 0]
    assert [(each.version, each.leaves) for each in table] == [(2, False), (1, True)]
    table.leave("r")
    assert [each.version for each in table] == [2]
    assert table.num_free == 1


def test_salts_differ_by_adapter_and_version() -> None:
    table = AdapterTable(2)
    add(table, "a", 1)
    salts = [table.salted(request("r", name, "s")).cache_salt for name in ("", "a")]
    add(table, "a", 2)
    salts.append(table.salted(request("r", "a", "s")).cache_salt)
    salts.append(table.salted(request("r", "", salts[-1])).cache_salt)  # a client's imitation
    assert len(set(salts)) == 4
    assert [salt_parts(salt) for salt in salts[:3]] == [("", "s"), ("a", "s"), ("a", "s")]
    assert salt_parts(salts[3]) == ("", salts[2])


def test_a_full_table_says_what_to_do() -> None:
    with pytest.raises(ConflictError, match="no room for adapters; start it with --max-adapters"):
        add(AdapterTable(0), "a", 1)
    table = AdapterTable(1)
    add(table, "a", 1)
    with pytest.raises(ConflictError, match="all 1 places for adapters are taken; unload one"):
        add(table, "b", 2)
    assert add(table, "a", 3) == 0  # nothing uses the earlier one
    table.enter(request("r", "a"))
    with pytest.raises(ConflictError, match="'a' runs 1 requests, and no other place is free"):
        add(table, "a", 4)
    assert [each.version for each in table] == [3]


def test_unloaded_adapters_take_no_requests() -> None:
    table = AdapterTable(1)
    with pytest.raises(ModelNotFoundError, match="no adapter 'a'; loaded are: none"):
        table.salted(request("r", "a"))
    add(table, "a", 1)
    table.enter(request("r", "a"))
    table.remove("a")
    for use in (table.salted, table.enter):
        with pytest.raises(ModelNotFoundError):
            use(request("s", "a"))
    assert (table.number_of("r"), table.num_free) == (1, 0)
    table.leave("r")
    table.leave("r")
    assert table.num_free == 1


class Traffic(RuleBasedStateMachine):
    """Loads, unloads and requests in any order, against a model: request → the version that it came with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = AdapterTable(NUM_PLACES)
        self.version = 0
        self.ready: dict[str, tuple[int, int]] = {}
        self.open: dict[str, tuple[int, int]] = {}

    @rule(name=NAMES)
    def load(self, name: str) -> None:
        self.version += 1
        try:
            place = add(self.table, name, self.version)
        except ConflictError:
            assert self.table.num_free == 0
            return
        assert place not in {used for used, _ in self.open.values()}
        assert place not in {used for other, (used, _) in self.ready.items() if other != name}
        self.ready[name] = (place, self.version)

    @rule(name=NAMES)
    def unload(self, name: str) -> None:
        if name in self.ready:
            self.table.remove(name)
            del self.ready[name]

    @rule(name=NAMES)
    def come(self, name: str) -> None:
        id = f"r{self.version}-{len(self.open)}-{name}"
        if name in self.ready and id not in self.open:
            self.table.enter(request(id, name))
            self.open[id] = self.ready[name]

    @rule(which=st.integers(0, 99))
    def end(self, which: int) -> None:
        if self.open:
            id = sorted(self.open)[which % len(self.open)]
            self.table.leave(id)
            del self.open[id]

    @invariant()
    def requests_have_their_places(self) -> None:
        assert all(self.table.number_of(id) == place + 1 for id, (place, _) in self.open.items())
        used = {place for place, _ in (*self.open.values(), *self.ready.values())}
        assert self.table.num_free == NUM_PLACES - len(used)


test_traffic_keeps_each_place = Traffic.TestCase
