"""Checks a component for `llmfw plugins doctor`, without building it.

`child` calls this in a separate process, because importing a component may crash.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmfw.core.base.errors import ComponentError
from llmfw.core.plugin.interface_check import problems_in
from llmfw.core.plugin.registry import Entry


def problems_of(entry: Entry) -> Iterator[str]:
    """Import a component and yield its problems, one clause each."""
    try:
        component = entry.load(checked=False)
    except ComponentError as error:
        yield " ".join(str(error).removeprefix(str(entry)).split())
        return
    yield from problems_in(component)
