"""A component that asks for an undeclared request field fails; the error names the declared ones."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from llmfw.core.base.errors import ComponentFailedError, UndeclaredFieldError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.observed import started_event
from llmfw.core.interfaces.declared_fields import DeclaredFields
from llmfw.core.interfaces.drafter import DraftedRequest, Drafter, SequenceDrafter
from llmfw.core.interfaces.logits_processor import LogitsProcessor, ProcessedRequest, ProcessedRows
from llmfw.core.interfaces.policy import Figures, Ordering, SchedulePolicy, Waiting
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.schedule.isolated_drafter import IsolatedDrafter
from llmfw.core.schedule.isolated_policy import load_policy
from llmfw.core.step.processors.isolated_processor import ChosenProcessor, IsolatedProcessor
from llmfw.core.testing.logits_processors import ExampleContext
from llmfw.core.testing.policy_views import make_figures, make_waiting

DECLARED = frozenset({"deadline_ms", "dry_base"})
SAID = (
    "no plugin registers the request field 'deadline_mss'; the fields are deadline_ms, dry_base. "
    "Did you mean 'deadline_ms'?"
)
REQUEST = Request(id="a", prompt=[1], sampling=SamplingParams(), fields={"dry_base": 2})


def entry_of(kind: str, name: str, component: type | None = None) -> Entry:
    path = f"{__name__}:{component.__name__ if component else 'Nothing'}"
    return Entry(kind, name, path, "house", "llmfw-house", "1.2")


@pytest.mark.parametrize(
    "ask",
    [
        lambda fields: fields.get("deadline_mss"),
        lambda fields: fields.get("deadline_mss", 3),
        lambda fields: fields["deadline_mss"],
        lambda fields: "deadline_mss" in fields,
    ],
)
@pytest.mark.parametrize("wrap", [lambda fields: fields, MappingProxyType, copy.deepcopy, copy.copy])
def test_every_way_to_ask_is_checked(ask: Any, wrap: Any) -> None:
    fields = wrap(DeclaredFields({"dry_base": 2}, DECLARED))
    with pytest.raises(UndeclaredFieldError) as raised:
        ask(fields)
    assert str(raised.value) == SAID


def test_declared_fields_are_answered_as_by_a_dict() -> None:
    fields = DeclaredFields({"dry_base": 2}, DECLARED)
    assert (fields["dry_base"], fields.get("dry_base"), "dry_base" in fields) == (2, 2, True)
    assert (fields.get("deadline_ms"), fields.get("deadline_ms", 5), "deadline_ms" in fields) == (
        None,
        5,
        False,
    )
    with pytest.raises(KeyError):
        fields["deadline_ms"]
    assert (dict(fields), len(fields), msgspec.json.encode(fields)) == (
        {"dry_base": 2},
        1,
        b'{"dry_base":2}',
    )


def test_what_the_request_has_is_never_refused() -> None:
    fields = DeclaredFields({"of_my_own": 1}, DECLARED)
    assert (fields["of_my_own"], fields.get("of_my_own"), "of_my_own" in fields) == (1, 1, True)


def test_a_registry_without_fields_says_so() -> None:
    with pytest.raises(UndeclaredFieldError, match=r"'speed'; no plugin registers any$"):
        DeclaredFields({}, ()).get("speed")


class Misspells(SchedulePolicy):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering(np.argsort(waiting.field("deadline_mss")))


class MisspellsOfARequest(SchedulePolicy):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering(np.argsort([waiting.request(i).fields.get("deadline_mss", 0) for i in range(2)]))


@pytest.mark.parametrize("policy", [Misspells, MisspellsOfARequest])
def test_a_policy_fails_once_and_arrival_replaces_it(
    policy: type[SchedulePolicy], caplog: pytest.LogCaptureFixture
) -> None:
    fields = [entry_of("request_field", name) for name in sorted(DECLARED)]
    isolated = load_policy(Registry([entry_of("policy", "mine", policy), *fields]), "mine", {})
    asked: list[str] = []

    def column(name: str) -> Any:
        asked.append(name)
        return np.full(2, np.nan)

    waiting = replace(make_waiting(2, arrival=[1, 0]), field=column, request=lambda place: REQUEST)
    for _ in range(3):
        assert isolated.order(waiting, make_figures()).places.tolist() == [1, 0]
    assert isolated.failure == f"UndeclaredFieldError: {SAID}"
    assert not asked, "a column was made for an undeclared field"
    [record] = caplog.records
    assert "'mine' of plugin 'house'" in record.message


def test_a_drafter_fails_once_and_nothing_is_drafted(caplog: pytest.LogCaptureFixture) -> None:
    class Misspelling(Drafter):
        def begin(self) -> SequenceDrafter:
            raise NotImplementedError

        def begin_for(self, request: DraftedRequest) -> SequenceDrafter:
            return request.fields["deadline_mss"]  # type: ignore[no-any-return]

    isolated = IsolatedDrafter(Misspelling(Drafter.Options()), 10, "drafter 'mine'", None, DECLARED)
    with caplog.at_level(logging.ERROR):
        assert [isolated.begin(REQUEST) for _ in range(3)] == [None] * 3
    assert isolated.failure == f"UndeclaredFieldError: {SAID}"
    assert len(caplog.records) == 1


def test_a_processor_fails_the_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Misspelling(LogitsProcessor):
        def begin(self, request: ProcessedRequest) -> Any:
            return request.fields.get("deadline_mss")

        def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
            return logits

    entry = entry_of("logits_processor", "mine")
    built = Misspelling(ExampleContext(), LogitsProcessor.Options())
    isolated = IsolatedProcessor(ChosenProcessor(entry, built), ComponentCalls(entry), DECLARED)
    fields: Mapping[str, Any] = MappingProxyType(REQUEST.fields)
    with pytest.raises(ComponentFailedError, match="mine"):
        isolated.begin(ProcessedRequest(fields, 1, ()))
    assert SAID in caplog.text


def test_an_observer_gets_checked_fields() -> None:
    started = started_event(REQUEST, declared=DECLARED)
    assert started.fields == {"dry_base": 2}
    assert b'"fields":{"dry_base":2}' in msgspec.json.encode(started)
    with pytest.raises(UndeclaredFieldError, match="Did you mean 'deadline_ms'"):
        started.fields.get("deadline_mss")


def test_bundled_fields_are_declared() -> None:
    assert load_plugins().registry.request_fields() >= DECLARED
