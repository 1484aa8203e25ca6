"""The result of checking a component or a route, promise by promise."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Promise:
    """A promise, that is, one rule for a component, route or command, and the results of its test.

    The test may run for several cases.

    Attributes:
        name: name of the test function.
        kept, broken, skipped: number of cases with this result.
        reason: reason of the first broken case, else of the first skipped case.
        where: file and line, if the case broke in the component's own code.
        traceback: traceback of the first broken case.
    """

    name: str
    kept: int = 0
    broken: int = 0
    skipped: int = 0
    reason: str = ""
    where: str | None = None
    traceback: str = ""

    @property
    def sentence(self) -> str:
        """The promise as a sentence."""
        return self.name.removeprefix("test_").replace("_", " ")

    @property
    def outcome(self) -> str:
        """The outcome as it is printed: "ok", "FAILED" or "skipped"."""
        return "FAILED" if self.broken else "ok" if self.kept else "skipped"

    @property
    def num_cases(self) -> int:
        """Total number of cases."""
        return self.kept + self.broken + self.skipped


@dataclass(slots=True)
class Verdict:
    """The result of a check.

    Attributes:
        promises: the checked rules with their results (see `Promise`), in the order of the tests.
        error: exception that prevented all tests; None if they ran.
        seconds: duration of the check.
    """

    promises: list[Promise] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0

    def count(self, outcome: str) -> int:
        """Return the number of promises with this outcome."""
        return sum(promise.outcome == outcome for promise in self.promises)

    @property
    def exit_code(self) -> int:
        """Exit code: 0 if all checked promises hold, 1 if one is broken, 2 if none was checked."""
        if self.count("FAILED"):
            return 1
        return 0 if self.count("ok") else 2
