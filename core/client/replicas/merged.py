"""Merges the descriptions and statistics of several engines into those of a single engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from llmfw.core.base.control import CacheView, MemoryInfo, PinInfo, PolicyInfo, PrefixInfo
from llmfw.core.base.engine_info import ComponentUse, EngineInfo, EngineStats
from llmfw.core.base.errors import EngineError
from llmfw.core.base.histogram import Histogram

from ..restarts import essence_of

SumT = TypeVar("SumT", bound=msgspec.Struct)


def merged_info(infos: Sequence[EngineInfo]) -> EngineInfo:
    """Return one description for all engines. Adds up their sizes; all other fields must be equal.

    Raises:
        EngineError: the engines differ; the message names the fields.
    """
    first = infos[0]
    for index, info in enumerate(infos):
        if differing := _differing(_shared(first), _shared(info)):
            raise EngineError(
                f"engine 0 and engine {index} are not alike: {'; '.join(differing)}; all engines of a server must be alike"
            )
    return msgspec.structs.replace(
        first,
        max_total_tokens=sum(info.max_total_tokens for info in infos),
        max_running_requests=sum(info.max_running_requests for info in infos),
        device=", ".join(dict.fromkeys(info.device for info in infos)),
    )


def _shared(info: EngineInfo) -> EngineInfo:
    """Return the properties that all engines must share. Only the type of the device must be equal."""
    return msgspec.structs.replace(essence_of(info), device=info.device.partition(":")[0])


def _differing(first: EngineInfo, other: EngineInfo) -> list[str]:
    theirs = msgspec.structs.asdict(other)
    return [
        f"{name} is {value!r} and {theirs[name]!r}"
        for name, value in msgspec.structs.asdict(first).items()
        if value != theirs[name]
    ]


def merged_stats(stats: Sequence[EngineStats]) -> EngineStats:
    """Return the sums of engines' statistics."""
    return _sum(stats)


def _sum(structs: Sequence[SumT]) -> SumT:
    """Return a struct with the sum of each field."""
    values = [msgspec.structs.asdict(each) for each in structs]
    return type(structs[0])(**{name: _sum_of([each[name] for each in values]) for name in values[0]})


def _sum_of(values: Sequence[object]) -> object:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if isinstance(known[0], Histogram):
        return _sum_of_histograms([value for value in known if isinstance(value, Histogram)])
    if isinstance(known[0], msgspec.Struct):
        return _sum([value for value in known if isinstance(value, msgspec.Struct)])
    if isinstance(known[0], list):
        return _merged_uses(use for value in known if isinstance(value, list) for use in value)
    return sum(value for value in known if isinstance(value, int | float))


def _sum_of_histograms(histograms: Sequence[Histogram]) -> Histogram:
    counts = [sum(column) for column in zip(*(each.counts for each in histograms), strict=True)]
    return Histogram(histograms[0].bounds, counts, sum(each.seconds for each in histograms))


def _merged_uses(uses: Iterable[ComponentUse]) -> list[ComponentUse]:
    found: dict[tuple[str, str, str], list[ComponentUse]] = {}
    for use in uses:
        found.setdefault((use.kind, use.name, use.plugin), []).append(use)
    return [
        ComponentUse(
            *key,
            seconds=sum(use.seconds for use in same),
            calls=sum(use.calls for use in same),
            failures=sum(use.failures for use in same),
            dropped=sum(use.dropped for use in same),
            latency=_latency(same),
            refused=sum(use.refused for use in same),
        )
        for key, same in found.items()
    ]


def _latency(uses: Sequence[ComponentUse]) -> Histogram | None:
    found = [use.latency for use in uses if use.latency is not None]
    return _sum_of_histograms(found) if found else None


def merged_memory(memories: Sequence[MemoryInfo]) -> MemoryInfo:
    """Return the memory of all processes together."""
    return _sum(memories)


def merged_policy(policies: Sequence[PolicyInfo]) -> PolicyInfo:
    """Return the first policy that has failed; if there is none, the policy of the first engine."""
    return next((each for each in policies if each.failure is not None), policies[0])


def merged_view(views: Mapping[int, CacheView], pins: list[PinInfo], most: int) -> CacheView:
    """Return one view of all engines' prefix caches. Each prefix has the number of its engine.

    Args:
        views: number of the engine → view of its cache.
        pins: all pins.
        most: maximum number of prefixes in the view; takes the prefixes with the largest savings, from each
            engine in turn.
    """
    first = next(iter(views.values()))
    numbers = {
        name: sum(getattr(view, name) for view in views.values())
        for name in CacheView.__struct_fields__
        if isinstance(getattr(first, name), int)
    }
    lists = [
        [msgspec.structs.replace(prefix, replica=index) for prefix in view.prefixes]
        for index, view in views.items()
    ]
    prefixes = [prefix for each in _alternating(lists) for prefix in each][:most]
    return CacheView(**numbers, eviction=first.eviction, prefixes=prefixes, pins=pins)


def _alternating(lists: Sequence[Sequence[PrefixInfo]]) -> Iterable[Sequence[PrefixInfo]]:
    """Yield the first items of all lists, then the second items, and so on. Lists are sorted by savings."""
    for place in range(max(map(len, lists), default=0)):
        yield [each[place] for each in lists if place < len(each)]
