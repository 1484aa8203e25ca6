"""The plain and the overlapped loop, which run the halves of consecutive steps in different orders.

    plain        schedule n,    forward n,    sample n,    wait for n,  commit n
    overlapped   schedule n+1,  forward n+1,  sample n+1,  wait for n,  commit n

In the overlapped loop, the host works on one step while the device works on another. If the mask of a token
depends on the token before it, the loop commits step n before it samples step n+1, during the forward pass of
n+1. A request's output does not depend on the loop. The scheduler, not the loop, decides the contents of a
step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from llmfw.core.base.request import TokenEvent
from llmfw.core.plugin.containment import contained
from llmfw.core.schedule.mask_filler import MaskFiller
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.step.executor import Executor
from llmfw.core.step.pending import PendingOutput
from llmfw.core.step.recording import RecordedOutput, RecordingExecutor

from ..ranks.group_executor import GroupExecutor
from .deferrable_budget import DeferrableBudget
from .piece_budget import PieceBudget
from .step_faults import StepFaults
from .step_log import StepLog
from .step_meter import COMMIT, FORWARD, SAMPLE, WAIT, StepMeter


@dataclass(frozen=True, slots=True)
class LoopContext:
    """Objects that both loops use.

    Attributes:
        scheduler: plans the steps.
        executor: computes the steps.
        masks: fills the masks of allowed tokens.
        step_log: logs each launched step.
        deferrable_budget, piece_budget: limit the next steps by the times of earlier ones.
        faults: finds the cause of a failed step.
        meter: measures the phases of the steps.
    """

    scheduler: Scheduler
    executor: Executor | RecordingExecutor | GroupExecutor
    masks: MaskFiller
    step_log: StepLog
    deferrable_budget: DeferrableBudget
    piece_budget: PieceBudget
    faults: StepFaults
    meter: StepMeter


@dataclass(frozen=True, slots=True)
class _Launched:
    """A step that is not committed yet; `begun` is its start time from `DeferrableBudget.begin`."""

    plan: BatchPlan
    output: PendingOutput | RecordedOutput
    begun: float


class Loop(ABC):
    """Runs the scheduler's plans.

    Args:
        context: objects that the loop uses.
    """

    def __init__(self, context: LoopContext) -> None:
        self._context = context

    @property
    @abstractmethod
    def has_launched(self) -> bool:
        """Whether a launched step is not committed yet."""

    @abstractmethod
    def run(self, plan: BatchPlan, begun: float) -> list[TokenEvent]:
        """Launch a plan, if it is not empty; return the events of the steps that were committed.

        Raises:
            Exception: the exception of a failed step, if the engine cannot continue.
        """

    def _commit(
        self, plan: BatchPlan, pending: PendingOutput | RecordedOutput, begun: float
    ) -> list[TokenEvent]:
        """Wait for a launched step and commit it; return its events.

        Args:
            begun: start time of the step, from `DeferrableBudget.begin`.
        """
        context = self._context
        output = pending.result()
        context.meter.end(WAIT)
        events = context.scheduler.commit(plan, output)
        context.piece_budget.learn(plan, context.deferrable_budget.end_plan(plan, begun))
        return events

    def _give_up(self, plan: BatchPlan, error: Exception, before: _Launched | None) -> list[TokenEvent]:
        """End the requests of a plan whose forward pass or sampling raised an exception.

        Returns the events of the previous step, if it was not committed yet, and the final events of the
        ended requests.

        Raises:
            Exception: the exception of the step, if the engine cannot continue.
        """
        failure = self._context.faults.blame(error)
        self._context.scheduler.withdraw(plan)
        events = []
        if before is not None:
            events = self._commit(before.plan, before.output, before.begun)
        return events + [TokenEvent.failed(id, failure) for id in self._context.scheduler.give_up(plan)]


class PlainLoop(Loop):
    """Finishes each step before the next one starts. Masks are computed during the forward pass."""

    @property
    def has_launched(self) -> bool:
        return False

    def run(self, plan: BatchPlan, begun: float) -> list[TokenEvent]:
        if not plan.sequences:
            return []
        wait_for_masks = self._context.masks.start(plan)
        try:
            forward = self._context.executor.forward(plan.step)
        except BaseException as error:  # noqa: BLE001 - mostly of a plugin; other requests continue
            wait_for_masks()
            return self._give_up(plan, contained(error), None)
        self._context.meter.end(FORWARD)
        masks = wait_for_masks()
        try:
            output = self._context.executor.sample(forward, masks)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._give_up(plan, contained(error), None)
        self._context.meter.end(SAMPLE)
        self._context.step_log.note(plan)
        return self._commit(plan, output, begun)


class OverlappedLoop(Loop):
    """Launches each step before the previous one is committed.

    Args:
        context: objects that the loop uses.
    """

    def __init__(self, context: LoopContext) -> None:
        super().__init__(context)
        self._launched: _Launched | None = None

    @property
    def has_launched(self) -> bool:
        return self._launched is not None

    def run(self, plan: BatchPlan, begun: float) -> list[TokenEvent]:
        events: list[TokenEvent] = []
        before, self._launched = self._launched, None
        if plan.sequences:
            try:
                forward = self._context.executor.forward(plan.step)
            except BaseException as error:  # noqa: BLE001 - as in `PlainLoop`
                return self._give_up(plan, contained(error), before)
            self._context.meter.end(FORWARD)
            if before is not None and plan.needs_last_tokens:
                events = self._commit(before.plan, before.output, before.begun)
                self._context.meter.end(COMMIT)
                before = None
            masks = self._context.masks.make(plan)
            try:
                output = self._context.executor.sample(forward, masks)
            except BaseException as error:  # noqa: BLE001 - as above
                return events + self._give_up(plan, contained(error), before)
            self._context.meter.end(SAMPLE)
            self._launched = _Launched(plan, output, begun)
            self._context.step_log.note(plan)
        if before is not None:
            events = self._commit(before.plan, before.output, before.begun)
        return events
