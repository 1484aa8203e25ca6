"""The options of one call of `llmfw simulate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmfw.core.schedule.cache.isolated_rule import IsolatedRule

from .objective import Objective
from .replica import EngineSettings

PAGE_SIZE = 16
"""Page size for traces that do not name one."""


@dataclass(frozen=True)
class Settings:
    """The command's options; see their help texts in command.py."""

    policies: tuple[str, ...]
    options: dict[str, str]
    profile: str
    kv_tokens: int
    page_size: int | None
    max_running: int
    chunk: int
    stretch: float
    eviction: str
    replicas: int
    routers: tuple[str, ...]
    objective: Objective | None
    speed: float
    limit: int | None
    block_size: int
    infinite: bool
    as_json: bool
    plot: Path | None

    def engine(self, make_rule: Callable[[], IsolatedRule]) -> EngineSettings:
        """Return the settings of each replica."""
        return EngineSettings(
            self.kv_tokens,
            self.page_size or PAGE_SIZE,
            self.max_running,
            self.chunk,
            self.stretch,
            make_rule,
        )

    def options_of(self, kind: str) -> dict[str, str]:
        """Return the options of a kind of components."""
        return {key: value for key, value in self.options.items() if key.startswith(f"{kind}.")}

    def described(self, router: str) -> dict[str, object]:
        """Return the settings that affect the metrics, except the trace and the policy.

        Args:
            router: name of the router.
        """
        names = (
            "profile",
            "kv_tokens",
            "page_size",
            "max_running",
            "chunk",
            "stretch",
            "eviction",
            "replicas",
            "speed",
            "limit",
        )
        return {name: getattr(self, name) for name in names} | {
            "router": router,
            "options": self.options,
        }
