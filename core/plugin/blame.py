"""Finds the component whose code raised an exception, by the modules in its traceback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmfw.core.base.disarm import causes_of

from .registry import Entry


def component_at_fault(error: BaseException, components: Sequence[Entry]) -> Entry | None:
    """Return the component whose code was running, the innermost if several; None if there was none.

    Also looks at the causes of the exception. Code in a component's module, or else in the module's package,
    counts as the component's code.

    Args:
        components: components to consider; of several in one package, the first is returned.
    """
    for module in _running(error):
        for entry in components:
            if module == _module_of(entry):
                return entry
        for entry in components:
            package = _module_of(entry).rpartition(".")[0]
            if package and f"{module}.".startswith(f"{package}."):
                return entry
    return None


def _module_of(entry: Entry) -> str:
    return entry.path.partition(":")[0]


def _running(error: BaseException) -> Iterator[str]:
    """Yield the names of the modules whose code was running, the innermost first."""
    for each in reversed(causes_of(error)):
        names, traceback = [], each.__traceback__
        while traceback is not None:
            names.append(str(traceback.tb_frame.f_globals.get("__name__", "")))
            traceback = traceback.tb_next
        yield from reversed(names)
