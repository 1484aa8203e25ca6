"""Known facts about an engine process that has ended, for a crash report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.engine.process.heartbeat import Phase
from llmfw.core.ipc.step_ring import StepRecord


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """An unexpected end of an engine process.

    Attributes:
        reason: why it ended, in llmfw's own words.
        message: message of the exception that ended it, which may quote a request; "" if no exception ended
            it.
        returncode: exit code, or the negative number of the signal.
        has_hung: whether the watchdog killed it.
        phase: activity of its main thread at the end.
        num_step_tokens: number of tokens of its last step.
        lived_s: seconds from its start to its end.
        info: description of the engine; None if it was not ready yet.
        steps: its last steps, the oldest first.
        log: its last log lines.
        stacks: stacks of its threads; "" if it did not write them.
    """

    reason: str
    message: str
    returncode: int
    has_hung: bool
    phase: Phase
    num_step_tokens: int
    lived_s: float
    info: EngineInfo | None
    steps: Sequence[StepRecord] = field(default_factory=tuple)
    log: str = ""
    stacks: str = ""
