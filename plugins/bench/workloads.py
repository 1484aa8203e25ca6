"""The workloads: number, concurrency and lengths of requests. Does not depend on text or HTTP."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Workload:
    """A fixed set of requests to send. Lengths are in tokens.

    Attributes:
        name: name in the option `--workload`.
        requests: number of requests, or of conversations if `turns` is above 1.
        concurrency: number of requests or conversations that run at the same time.
        prompt: number of new prompt tokens per request or turn.
        output: number of output tokens that each request asks for.
        shared: number of leading prompt tokens that all requests share.
        turns: number of consecutive requests in a conversation; each prompt includes all earlier turns.
    """

    name: str
    requests: int
    concurrency: int
    prompt: int
    output: int
    shared: int = 0
    turns: int = 1

    def scaled(self, factor: float) -> Workload:
        """Return the workload with `factor` times as many requests, at least one, and otherwise unchanged."""
        return replace(self, requests=max(1, round(self.requests * factor)))

    def warmup(self) -> Workload:
        """Return a short version for warm-up: `concurrency` requests, at least two, at most `requests`."""
        return replace(self, requests=min(self.requests, max(2, self.concurrency)))

    def describe(self) -> str:
        """Return the workload in one line, for help texts."""
        prompt = f"{self.shared} shared + {self.prompt}" if self.shared else str(self.prompt)
        if self.turns > 1:
            return (
                f"{self.requests} conversations at once, {self.turns} turns of {prompt} in, {self.output} out"
            )
        many = "all at once" if self.concurrency >= self.requests else f"{self.concurrency} at a time"
        return f"{self.requests} requests, {many}, {prompt} in, {self.output} out"


WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        Workload("single", requests=4, concurrency=1, prompt=128, output=128),
        Workload("batch16", requests=48, concurrency=16, prompt=256, output=64),
        Workload("prefix", requests=48, concurrency=16, prompt=32, output=32, shared=512),
        Workload("burst", requests=128, concurrency=128, prompt=64, output=32),
        Workload("multiturn", requests=8, concurrency=8, prompt=64, output=48, turns=4),
    )
}
ALL = "all"
"""The name that runs all workloads, one after the other."""
