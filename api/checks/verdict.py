"""What a check says of a part, promise by promise. Knows nothing of how it was found out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Promise:
    """A promise of an interface, and what its tests say: one test, or one for each of several cases.

    Attributes:
        name: of the test function.
        kept, broken, skipped: how many cases.
        reason: of the first that was broken, else of the first that was skipped.
        where: file and line, if it broke in the part's own code.
        traceback: of the first that was broken.
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
        """The promise in words."""
        return self.name.removeprefix("test_").replace("_", " ")

    @property
    def outcome(self) -> str:
        """As it is printed: "ok", "FAILED" or "skipped"."""
        return "FAILED" if self.broken else "ok" if self.kept else "skipped"

    @property
    def num_cases(self) -> int:
        """How many tests there were."""
        return self.kept + self.broken + self.skipped


@dataclass(slots=True)
class Verdict:
    """What came of a check.

    Attributes:
        promises: in the order of the tests.
        error: why nothing could be run.
        seconds: that it took.
    """

    promises: list[Promise] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0

    def count(self, outcome: str) -> int:
        """Return how many promises have come out so."""
        return sum(promise.outcome == outcome for promise in self.promises)

    @property
    def exit_code(self) -> int:
        """0: what could be checked holds. 1: a promise is broken. 2: nothing could be checked."""
        if self.count("FAILED"):
            return 1
        return 0 if self.count("ok") else 2
