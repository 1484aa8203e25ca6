"""Calls the scheduling policy: builds its input from sequences, pool and queue, and converts its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from llmfw.core.interfaces.policy import Figures, Ordering, Running, SchedulePolicy

from .deferral import Lane, Limits
from .sequence import SequenceState
from .sequence_pages import SequencePages
from .tenants import Tenants
from .turns import above_share, take_turns


class PolicyAdapter:
    """Calls the scheduling policy.

    Args:
        policy: current policy; it may be replaced between two steps.
        pages: pages of all sequences.
        live, deferrable: the sequences of each class (see `deferral`).
        tenants: usage counters of the tenants.
        whole: maximum number of sequences and prompt tokens in a step.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        policy: SchedulePolicy,
        pages: SequencePages,
        live: Lane,
        deferrable: Lane,
        tenants: Tenants,
        whole: Limits,
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self._pages = pages
        self._table = pages.numbers
        self._live = live
        self._deferrable = deferrable
        self._tenants = tenants
        self._whole = whole
        self._clock = clock

    def order(self, lane: Lane, budget: int = 0) -> Ordering:
        """Return the order in which to admit a lane's sequences.

        This is the policy's order, rearranged so that API keys take turns (see `turns`).

        Args:
            budget: number of prompt tokens that the step may still compute.
        """
        waiting = lane.queue.view(self._tenants, self._clock())
        return take_turns(self.policy.order(waiting, self._figures(lane, budget)), waiting, self._tenants)

    def retraction_order(self, lane: Lane) -> list[SequenceState]:
        """Return a lane's running sequences in the order in which to retract them."""
        running = lane.running
        places = self.policy.retraction_order(self._view(running, self._clock()), self._figures(lane))
        return [running[place] for place in places.tolist()]

    def first(self, lane: Lane) -> SequenceState:
        """Return the waiting sequence of a lane that is first in the order."""
        return self._table.at(int(lane.queue.indices[self.order(lane).places[0]]))

    def give_way(self, lane: Lane, seq: SequenceState) -> Iterator[SequenceState]:
        """Yield the running sequences that the policy would retract for a waiting one, in order."""
        running, now = lane.running, self._clock()
        waiting = lane.queue.view(self._tenants, now)
        place = int(self._table.place[seq.index])
        for i in self.policy.give_way(waiting, place, self._view(running, now), self._figures(lane)).tolist():
            yield running[i]

    @property
    def has_shares(self) -> bool:
        """Whether requests of several API keys wait or run, so that each key has a share of the rows."""
        return self._tenants.num_open_keys > 1

    def above_share(self, lane: Lane, seq: SequenceState) -> Iterator[SequenceState]:
        """Yield running sequences of API keys above their share, to retract for a waiting one.

        See `turns.above_share`.
        """
        return above_share(seq, self.retraction_order(lane), self._whole.places, self._tenants)

    def _figures(self, lane: Lane, budget: int = 0) -> Figures:
        num_running = self._live.num_running + self._deferrable.num_running
        num_in_the_way = self._live.num_running if lane is self._live else num_running
        return Figures(
            num_waiting=self._live.num_waiting + self._deferrable.num_waiting,
            num_running=num_running,
            num_places=self._whole.places - num_in_the_way,
            num_free_tokens=self._pages.num_available_tokens,
            num_total_tokens=self._pages.num_total_tokens,
            budget=budget,
        )

    def _view(self, running: list[SequenceState], now: float) -> Running:
        table = self._table
        indices = np.array([seq.index for seq in running], dtype=np.intp)
        tenant = table.tenant[indices]
        return Running(
            arrival=table.arrival[indices],
            waited=now - table.came_at[indices],
            time_left=table.deadline[indices] - now,
            priority=table.priority[indices],
            num_to_come=table.max_len[indices] - table.length[indices],
            tenant=tenant,
            served=self._tenants.served[tenant],
            prompt_len=table.prompt_len[indices],
            num_output=np.array([seq.num_output for seq in running], dtype=np.int64),
            num_held=np.array([self._pages.num_freed_tokens(seq) for seq in running], dtype=np.int64),
            field=lambda name: table.field_column(name)[indices],
            request=lambda place: running[place].request,
        )
