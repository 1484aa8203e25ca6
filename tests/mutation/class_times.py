"""Measures how long each conformance class takes for bundled components, in seconds of processor time.

    python -m tests.mutation.class_times tests/plugins/policies tests/plugins/test_promises.py

Runs those tests only that come from a conformance class, and prints a line when it has run a class of tests.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator

import pytest

import llmfw.core.testing as kit

HOME = kit.__name__


class ClassTimes:
    """A plugin of pytest that adds up the processor time of the tests of each class."""

    def __init__(self) -> None:
        self._seconds: Counter[Key] = Counter()
        self._tests: Counter[Key] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if key_of(each) is not None]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        begun = time.process_time()
        yield
        key = key_of(item)
        assert key is not None
        self._seconds[key] += time.process_time() - begun
        self._tests[key] += 1
        if nextitem is None or key_of(nextitem) != key:
            print(
                f"\n| `{key[0]}` | `{key[1]}` | {self._tests[key]} | {self._seconds[key]:.1f} |",
                file=sys.__stdout__,
                flush=True,
            )


Key = tuple[str, str]
"""Names of a conformance class, and of the class of tests that derives from it."""


def key_of(item: pytest.Item) -> Key | None:
    """Return the names of the conformance class and of the class of tests; None for a test of another kind."""
    of_tests = getattr(item, "cls", None)
    if of_tests is None:
        return None
    found = [
        each
        for each in of_tests.__mro__
        if each.__module__.startswith(HOME) and each.__name__.endswith("Tests")
    ]
    return (found[0].__name__, of_tests.__name__) if found else None


def main() -> None:
    """Run the tests that the command line names, and print the lines of a table."""
    sys.exit(pytest.main(["-q", "-s", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[ClassTimes()]))


if __name__ == "__main__":
    main()
