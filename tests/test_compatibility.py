"""What was public in the last release is public still; and a change that breaks a plugin is told as one."""

from __future__ import annotations

import copy
import importlib
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import llmfw.core.testing

DOCS = Path(__file__).parents[1] / "docs"

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def public() -> Iterator[Any]:
    """The module docs/public.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("public")


@pytest.fixture(scope="module")
def public_types() -> Iterator[Any]:
    """The module docs/public_types.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("public_types")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What the last release had."""
    found: dict[str, Any] = json.loads((DOCS / "public_surface.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def today(public: Any) -> Iterator[dict[str, Any]]:
    """What is public now. Only bundled plugins are looked at."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMFW_PLUGINS", ",".join(project["entry-points"]["llmfw"]))
        yield public.surface()


def test_everything_in_the_last_release_exists(public, recorded, today):
    broken = public.complaints(recorded, today)
    assert broken == [], "\n".join([*broken, public.advice(recorded["version"])])


def test_what_authors_import_is_public(public):
    exported = set(dir(llmfw.core)) - vars(llmfw.core).keys()
    assert exported <= set(public.PUBLIC["llmfw.core"])
    testing = {name for module, names in public.PUBLIC.items() if "testing" in module for name in names}
    assert set(llmfw.core.testing.__all__) <= testing


def test_public_signatures_use_public_types(public, public_types):
    """Fixtures of the conformance classes are left out: a test gets their values and never names their types."""
    names = {module: names for module, names in public.PUBLIC.items() if "testing" not in module}
    assert public_types.private_types(names) == []


def test_a_private_type_is_reported(public_types):
    found = public_types.private_types({"llmfw.core": ("TokenEvent", "TokenLogprob", "FinishReason")})
    assert found == ["llmfw.core:TokenEvent.wait uses llmfw.core.base.request.Wait, which is not public"]


CHAT = "POST /v1/chat/completions"
POLICY = "llmfw.core:SchedulePolicy"
ORDER = [["waiting", "positional or keyword", None], ["figures", "positional or keyword", None]]


def methods(found: dict[str, Any], path: str) -> dict[str, Any]:
    inside: dict[str, Any] = found["names"][path]["methods"]
    return inside


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["hooks"].pop("register_routes"), "hook 'register_routes' is gone"),
        (lambda s: s["hooks"]["register_routes"].clear(), "hook register_routes does not pass 'register'"),
        (lambda s: s["kinds"].pop("grammar"), "kind of component 'grammar' is gone"),
        (lambda s: s["names"].pop("llmfw.core:hookimpl"), "public name 'llmfw.core:hookimpl' is gone"),
        (lambda s: s["routes"].pop("GET /v1/models"), "route 'GET /v1/models' is gone"),
        (lambda s: s["routes"][CHAT].update(status="201"), "answers with 201, and did with 200"),
        (lambda s: s["routes"][CHAT]["body"].pop("stop"), f"{CHAT} does not read 'stop' any more"),
        (lambda s: s["routes"][CHAT]["body"].update(stop=True), f"{CHAT} needs 'stop' now"),
        (lambda s: s["routes"][CHAT]["body"].update(new=True), f"{CHAT} needs 'new' now"),
        (
            lambda s: s["routes"][CHAT]["reply"].pop("usage.total_tokens"),
            "has no 'usage.total_tokens' any more",
        ),
        (lambda s: s["routes"][CHAT]["event"].pop("choices[].delta"), "has no 'choices[].delta' any more"),
        (lambda s: s["routes"][CHAT]["reply"].update(id=False), "may lack 'id' now"),
        (lambda s: s["routes"]["GET /v1/files"]["query"].remove("after"), "'after' of the query"),
        (lambda s: s["commands"].pop("llmfw serve"), "command 'llmfw serve' is gone"),
        (lambda s: s["commands"]["llmfw serve"].remove("--policy"), "does not take --policy any more"),
        (lambda s: methods(s, POLICY).pop("give_way"), "SchedulePolicy.give_way is gone"),
        (lambda s: methods(s, POLICY)["give_way"].update(abstract=True), "give_way has become abstract"),
        (
            lambda s: methods(s, POLICY).update(new=methods(s, POLICY)["order"]),
            "SchedulePolicy.new is a new abstract method",
        ),
        (
            lambda s: methods(s, POLICY)["order"].update(
                parameters=[*ORDER, ["now", "positional or keyword", "0.0"]]
            ),
            "put new data into what it is given",
        ),
        (
            lambda s: methods(s, "llmfw.core:Tokenizer")["encode"]["parameters"].append(
                ["truncate", "keyword-only", None]
            ),
            "needs 'truncate' now",
        ),
        (
            lambda s: methods(s, "llmfw.core:FileStore")["get"].update(waits=False),
            "FileStore.get is called in another way",
        ),
        (
            lambda s: s["names"]["llmfw.core:ToolCallDelta"]["fields"].update(id=True),
            "ToolCallDelta cannot be made without 'id'",
        ),
        (
            lambda s: s["names"]["llmfw.core:Waiting"]["fields"].pop("served"),
            "Waiting.served is gone",
        ),
        (
            lambda s: s["names"]["llmfw.core:NotFoundError"]["bases"].remove("RequestError"),
            "NotFoundError is no RequestError any more",
        ),
        (
            lambda s: s["names"]["llmfw.core.testing.policy_views:make_waiting"]["parameters"].clear(),
            "calls that worked do not",
        ),
    ],
)
def test_a_breaking_change_is_reported(public, today, change: Change, told: str):
    changed = copy.deepcopy(today)
    change(changed)
    assert any(told in sentence for sentence in public.complaints(today, changed))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["hooks"].update(register_samplers=["register"]),
        lambda s: s["hooks"]["register_routes"].append("config"),
        lambda s: s["commands"]["llmfw serve"].append("--more"),
        lambda s: s["routes"].update({"GET /v1/more": s["routes"]["GET /v1/models"]}),
        lambda s: s["routes"][CHAT]["body"].update({"new": False, "new.inside": True, "messages": False}),
        lambda s: s["routes"][CHAT]["reply"].update(new=True),
        lambda s: methods(s, POLICY).update(new=methods(s, POLICY)["order"] | {"abstract": False}),
        lambda s: s["names"]["llmfw.core:Waiting"]["fields"].update(language=True),
        lambda s: s["names"]["llmfw.core:ToolCallDelta"]["fields"].update(id=False),
        lambda s: methods(s, "llmfw.core:Tokenizer")["encode"]["parameters"].append(
            ["truncate", "keyword-only", "False"]
        ),
    ],
)
def test_additions_do_not_break_compatibility(public, today, change: Change):
    changed = copy.deepcopy(today)
    change(changed)
    assert changed != today
    assert public.complaints(today, changed) == []


def test_a_released_version_s_record_is_not_shortened(public, today, monkeypatch, tmp_path):
    record = tmp_path / "surface.json"
    record.write_text(json.dumps(today))
    shorter = copy.deepcopy(today)
    shorter["hooks"].pop("register_routes")
    monkeypatch.setattr(public, "RECORD", record)
    monkeypatch.setattr(public, "surface", lambda: shorter)
    monkeypatch.setattr(public, "is_released", lambda version: True)
    with pytest.raises(SystemExit, match="hook 'register_routes' is gone"):
        public.record()
    assert json.loads(record.read_text()) == today
    shorter["version"] = "0.2.0"
    public.record()
    assert json.loads(record.read_text()) == shorter
