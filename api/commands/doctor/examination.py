"""Runs a process per group of plugins (`child`), reads its report, and stops it if an import takes too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.metadata import distribution
from typing import Any

import msgspec

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.plugin.installed_plugins import find_plugins
from llmfw.core.plugin.plugins import GROUP
from llmfw.core.plugin.plugins import SLOW_S as SLOW_LOADING_S
from llmfw.core.plugin.slow_import import STILL_S as SLOW_S

TORCH_S = 30.0
"""Seconds to allow in addition for the first import of torch in a process."""


class Finding(msgspec.Struct, frozen=True):
    """A finding about a plugin or component.

    Attributes:
        level: "problem", "lacks", "slow" or "note".
        what: the plugin, or the component and its package.
        text: description, as a clause whose subject is `what`.
    """

    level: str
    what: str
    text: str


class Examined(msgspec.Struct, frozen=True):
    """An examined component. `seconds` is the duration of its import; None if a package is missing."""

    component: str
    package: str
    seconds: float | None


class StoppedError(Exception):
    """The process reported nothing until the timeout."""


def examine(
    groups: Sequence[Sequence[str]], timeout: float, begun: Callable[[str], None]
) -> Iterator[Finding | Examined]:
    """Examine groups of plugins one by one; yield findings and examined components.

    Args:
        groups: names of plugins; the plugins of a group share a process, and so its import of torch.
        timeout: maximum number of seconds for loading a group, and for importing each component.
        begun: called with the description of each group before it is examined.
    """
    for group in groups:
        begun(_spoken(group))
        left_out: list[str] = []
        while (stopped_at := (yield from _run(group, left_out, timeout))) is not None:
            left_out.append(stopped_at)


def _spoken(group: Sequence[str]) -> str:
    return f"plugin {group[0]!r}" if len(group) == 1 else f"{len(group)} plugins of {DISTRIBUTION}"


def grouped(names: Sequence[str]) -> list[list[str]]:
    """Return the groups of plugins that share a process: all of llmfw's own; each other one alone."""
    own = {entry_point.name for entry_point in distribution(DISTRIBUTION).entry_points.select(group=GROUP)}
    together = [name for name in names if name in own]
    return [*([together] if together else []), *([name] for name in names if name not in own)]


def installed_plugins() -> list[str]:
    """Return the names of all installed plugins.

    If LLMFW_PLUGINS is set, returns the names in it instead, installed or not.
    """
    only = os.environ.get("LLMFW_PLUGINS")
    if only is not None:
        return sorted({name.strip() for name in only.split(",") if name.strip()})
    return sorted({entry_point.name for entry_point in find_plugins(GROUP).entry_points})


def damages() -> Iterator[Finding]:
    """Yield a problem for each damaged package, and a note for each package installed in several versions."""
    found = find_plugins(GROUP)
    yield from (Finding("problem", "installation", text) for text in found.damaged)
    yield from (Finding("note", "installation", text) for text in found.notes)


def _run(
    group: Sequence[str], left_out: list[str], timeout: float
) -> Generator[Finding | Examined, None, str | None]:
    """Run one process; return the component at which it died or was stopped.

    Returns None if no further process is needed: this one finished, or the plugin itself could not be loaded.

    Args:
        group: names of the plugins.
        left_out: components that are not imported, because they ended earlier processes.
        timeout: maximum number of seconds between two events.
    """
    child = _Child(group, left_out)
    current = _spoken(group)
    component: str | None = None
    package = ""
    try:
        while (event := child.next_event(timeout))["event"] != "end":
            match event["event"]:
                case "loaded":
                    if not left_out:
                        yield from _of_plugin(event)
                case "importing":
                    component, package = event["component"], event["package"]
                    current = f"{component} ({package})"
                case "imported":
                    yield Examined(str(component), package, None if event["lacks"] else event["seconds"])
                    yield from _of_component(current, event)
                    component = None
        return None
    except StoppedError:
        text = f"was not imported after {timeout:g} s; it was stopped"
    except EOFError:
        text = f"ended the process that imported it, with exit code {child.wait()}"
    finally:
        child.end()
    yield Finding("problem", current, text)
    if component is not None:
        yield Examined(component, package, None)
    return component


def _of_plugin(event: dict[str, Any]) -> Iterator[Finding]:
    for reason in event["broken"]:
        plugin, _, cause = reason.partition(" did not load: ")
        yield Finding("problem", plugin, f"did not load: {cause}")
    for plugin, seconds in event["plugins"].items():
        if seconds > SLOW_LOADING_S:
            yield Finding("slow", plugin, f"takes {seconds:.1f} s to load, at each start of llmfw")


def _of_component(what: str, event: dict[str, Any]) -> Iterator[Finding]:
    if event["lacks"]:
        yield Finding("lacks", what, event["lacks"])
    for problem in event["problems"]:
        yield Finding("problem", what, problem)
    if event["seconds"] > SLOW_S + (TORCH_S if event.get("torch") else 0.0):
        yield Finding("slow", what, f"takes {event['seconds']:.1f} s to import")


class _Child:
    """A running process that examines a group of plugins."""

    def __init__(self, group: Sequence[str], left_out: list[str]) -> None:
        quiet = {"LLMFW_STRICT_PLUGINS": "0", "LLMFW_TRACE_PLUGINS": "0"}
        # The child searches the same paths as this process, but loads only these plugins.
        env = os.environ | quiet | {"PYTHONPATH": os.pathsep.join(sys.path), "LLMFW_PLUGINS": ",".join(group)}
        command = [sys.executable, "-P", "-m", f"{__package__}.child", *left_out]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        self._buffer = b""

    def next_event(self, timeout: float) -> dict[str, Any]:
        """Return the next event; raise StoppedError at the timeout, EOFError if the process has ended."""
        until = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise StoppedError
            read = os.read(self._pipe, 1 << 16)
            if not read:
                raise EOFError
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        return self._process.wait()

    def end(self) -> None:
        """Stop the process if it still runs."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
