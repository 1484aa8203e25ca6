"""Rank 0's executor: sends each step to the other ranks, and computes it with them.

The other ranks only run the forward pass. Rank 0 samples: no other rank needs masks, penalties, logits
processors or bit-equal logits. If a step has tokens in flight, rank 0 sends their ids during the forward pass.
"""

from __future__ import annotations

import msgspec

from llmfw.core.base.described import described
from llmfw.core.base.errors import RankError
from llmfw.core.base.step import StepInput, StepOutput, TokenMasks, encode
from llmfw.core.plugin.containment import contained
from llmfw.core.step.executor import Executor, ForwardPass
from llmfw.core.step.pending import PendingOutput

from .rank_processes import RankProcesses

NOTICE_S = 1.0
"""Time in which the end of a process is noticed after the end of its connections."""


class GroupExecutor:
    """Computes steps together with other ranks; see `Executor`.

    Args:
        executor: rank 0's executor of its part of the model.
        ranks: the other ranks, which are ready.
    """

    def __init__(self, executor: Executor, ranks: RankProcesses) -> None:
        self._executor = executor
        self._ranks = ranks

    @property
    def has_own_threads(self) -> bool:
        """Whether nearly all of a step is computed on the components' own threads instead of torch's."""
        return self._executor.has_own_threads

    def run(self, step: StepInput, masks: TokenMasks | None = None) -> StepOutput:
        """Compute a step, wait for its output, and return it."""
        return self.sample(self.forward(step), masks).result()

    def forward(self, step: StepInput) -> ForwardPass:
        """Start the forward pass of a step on all ranks.

        Raises:
            RankError: the pass has failed on a rank. The ranks then wait for different exchanges, so the engine
                cannot continue.
        """
        try:
            self._ranks.send(encode(_for_others(step)))
            return self._executor.forward(step)
        except RankError:
            self._ranks.check(NOTICE_S)  # says how the rank has ended
            raise
        except BaseException as error:
            error = contained(error)
            raise RankError(f"a step failed on rank 0: {described(error)}") from error

    def sample(self, forward: ForwardPass, masks: TokenMasks | None = None) -> PendingOutput:
        """Start sampling for the step whose forward pass was started last."""
        return self._executor.sample(forward, masks)


def _for_others(step: StepInput) -> StepInput:
    """Return a step without what only sampling needs."""
    if not (step.row_starts or step.row_counts or step.row_tokens):
        return step
    return msgspec.structs.replace(step, row_starts=(), row_counts=(), row_tokens=())
