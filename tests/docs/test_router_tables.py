"""The routers that are compared: the others' rules, and the page's table of the replays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType

import pytest

from llmfw.core import ReplicaView, RoutedRequest

from .benchmark_script import FOLDER, benchmark_script


@pytest.fixture(scope="module")
def scripts() -> Iterator[list[ModuleType]]:
    with benchmark_script("routers", "rival_routers", "chats_trace") as modules:
        yield modules


def test_the_page_shows_the_recorded_replays(scripts: list[ModuleType]) -> None:
    replays = json.loads((FOLDER / "routers.json").read_text())["replays"]
    assert scripts[0].tables(replays) in (FOLDER.parent / "benchmarks.md").read_text()


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({"match_tokens": 31, "num_running": 64}, {}, 0),  # a match, and 64 more requests: balanced still
        ({"match_tokens": 31, "num_running": 65}, {}, 1),
        ({"match_tokens": 31, "num_running": 300}, {"num_running": 200}, 0),  # 1.5 times as many
        ({"match_tokens": 31, "num_running": 301}, {"num_running": 200}, 1),
        ({"match_tokens": 30, "num_waiting": 1}, {}, 1),  # not more than 0.3 of the prompt
    ],
)
def test_cache_aware_has_its_thresholds(
    scripts: list[ModuleType], first: dict[str, int], second: dict[str, int], chosen: int
) -> None:
    router = scripts[1].CacheAware(scripts[1].CacheAware.Options())
    views = [ReplicaView(0, **first), ReplicaView(1, **second)]
    assert router.choose(RoutedRequest(100), views).index == chosen


def test_ray_follows_prefixes_whatever_the_load(scripts: list[ModuleType]) -> None:
    """Without a match of a tenth, an engine to which the least was sent."""
    router = scripts[1].RayPrefix(scripts[1].RayPrefix.Options())
    full = ReplicaView(0, num_waiting=500, queued_tokens=10**6, match_tokens=10)
    assert router.choose(RoutedRequest(100), [full, ReplicaView(1)]) is full
    assert router.choose(RoutedRequest(101), [full, ReplicaView(1)]).index == 1
    assert router.choose(RoutedRequest(10), [ReplicaView(0), ReplicaView(1)]).index == 0


def test_next_turns_repeat_all_before_them(scripts: list[ModuleType]) -> None:
    lines = scripts[2].chats(1.0, 20.0, 0)
    assert lines == scripts[2].chats(1.0, 20.0, 0)
    assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
    ends = {tuple(line["hash_ids"] + line["output_hash_ids"]) for line in lines}
    continued = [line for line in lines if any(tuple(line["hash_ids"][: len(end)]) == end for end in ends)]
    assert 0.7 < len(continued) / len(lines) < 1
    assert all(line["input_length"] == 16 * len(line["hash_ids"]) for line in lines)
