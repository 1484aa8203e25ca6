"""Chooses which grammar to compile next, and stops grammars that take too long.

Quick and slow grammars have separate queues and child processes. A grammar starts as quick unless its source
is long. If it takes longer than a time slice (`quick_s`), it becomes slow. If no other grammar waits in the
slow queue, and fewer slow children run than are allowed, its child continues at low priority. Otherwise the
child is killed, and the grammar waits in the slow queue. So a quick grammar may wait for others' time slices,
but never for their full time limits. This module handles only timing and child processes; it neither reads
the supervisor's socket nor interprets grammars.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import msgspec

from llmfw.core.ipc.fair_queue import FairQueue

from .child import Child
from .messages import TIMEOUT, TOO_COMPLEX, Job, Limits, Verdict, decode_verdict

MIN_SLICE_S = 0.005


class Pool:
    """Child processes, and the queues of jobs that wait for a child.

    Args:
        limits: limits of all jobs and children.
        spawn: function that starts an idle child.
        answer: function that receives each job's verdict.
    """

    def __init__(self, limits: Limits, spawn: Callable[[], Child], answer: Callable[[Verdict], None]) -> None:
        self._limits = limits
        self._spawn = spawn
        self._answer = answer
        self._quick = FairQueue[Job](limits.max_quick)
        self._slow = FairQueue[Job](limits.max_slow)
        self._running: list[Child] = []
        self._idle: list[Child] = []
        self._refill()

    @property
    def children(self) -> Sequence[Child]:
        """All children, running and idle."""
        return [*self._running, *self._idle]

    def add(self, job: Job, now: float) -> None:
        """Add a job. Each job gets exactly one verdict, unless the job is cancelled."""
        is_slow = len(job.spec.source) > self._limits.quick_chars
        self._put(self._slow if is_slow else self._quick, job)
        self.advance(now)

    def cancel(self, job_id: int, now: float) -> None:
        """Remove a job, and kill its child if the job runs. The job gets no verdict."""
        if not (self._quick.remove(job_id) or self._slow.remove(job_id)):
            for child in self._running:
                if child.job is not None and child.job.id == job_id:
                    self._end(child)
                    break
        self.advance(now)

    def on_readable(self, child: Child, now: float) -> None:
        """Read from a child whose socket is readable, because it has answered or died."""
        payload = child.read()
        if payload is None:
            return
        if child in self._idle:  # an idle child sends nothing, so it has died
            self._idle.remove(child)
            child.end()
        else:
            self._finish(child, payload)
        self.advance(now)

    def advance(self, now: float) -> float | None:
        """Kill or demote children that exceed a time limit, and start waiting jobs.

        Returns:
            The time at which to call `advance` next; None if no job runs.
        """
        for child in list(self._running):
            used_s = child.cpu_s(now)
            if used_s >= self._limits.deadline_s or now - child.begun >= self._limits.longest_s:
                self._time_out(child)
            elif not child.is_slow and used_s >= self._limits.quick_s:
                self._demote(child)
        self._fill(now)
        return min((self._due(child, now) for child in self._running), default=None)

    def _due(self, child: Child, now: float) -> float:
        """Return the time at which a child must be checked next."""
        limit = self._limits.deadline_s if child.is_slow else self._limits.quick_s
        left = limit - child.cpu_s(now)  # CPU time grows no faster than wall time
        return min(child.begun + self._limits.longest_s, now + max(left, MIN_SLICE_S))

    def close(self) -> None:
        """Kill all children."""
        for child in self.children:
            child.end()

    def _fill(self, now: float) -> None:
        """Start waiting jobs while the limits allow further children to run."""
        num_slow = sum(child.is_slow for child in self._running)
        places = (
            (self._quick, self._limits.workers - (len(self._running) - num_slow), False),
            (self._slow, self._max_slow() - num_slow, True),
        )
        for queue, free, is_slow in places:
            for _ in range(free):
                job = queue.pop()
                if job is None:
                    break
                child = self._idle.pop() if self._idle else self._spawn()
                child.start(job, now, is_slow=is_slow)
                self._running.append(child)
        self._refill()

    def _refill(self) -> None:
        """Keep at least one idle child, so that the next job need not wait for a fork."""
        if not self._idle:
            self._idle.append(self._spawn())

    def _finish(self, child: Child, payload: bytes) -> None:
        """Answer a child's job, and keep or end the child.

        An empty `payload` means that the child has died.
        """
        job = child.job
        assert job is not None
        verdict = _verdict_of(payload)
        if verdict is None or verdict.is_last or child.is_slow:
            exit_code = self._end(child)
            verdict = verdict or self._verdict_after_death(exit_code)
        else:
            self._running.remove(child)
            child.job = None
            self._idle.append(child)
        self._answer(msgspec.structs.replace(verdict, id=job.id, is_last=False))
        while len(self._idle) > self._limits.workers:
            self._idle.pop(0).end()

    def _max_slow(self) -> int:
        return max(1, self._limits.workers - 1)

    def _demote(self, child: Child) -> None:
        job = child.job
        assert job is not None
        if sum(other.is_slow for other in self._running) < self._max_slow() and not len(self._slow):
            child.slow_down()
            return
        self._end(child)
        self._put(self._slow, job)

    def _time_out(self, child: Child) -> None:
        job = child.job
        assert job is not None
        self._end(child)
        self._answer(
            Verdict(
                id=job.id,
                outcome="killed",
                message=f"compiling it took longer than {self._limits.deadline_s:g} s; make it smaller",
                code=TIMEOUT,
            )
        )

    def _put(self, queue: FairQueue[Job], job: Job) -> None:
        dropped = queue.shed() if queue.add(job) else job
        if dropped is not None:
            message = f"{len(queue)} grammars wait to be compiled already; try again later"
            self._answer(Verdict(id=dropped.id, outcome="overloaded", message=message))

    def _end(self, child: Child) -> int:
        self._running.remove(child)
        return child.end()

    def _verdict_after_death(self, exit_code: int) -> Verdict:
        """Return the verdict for a grammar whose child died with this exit code."""
        if exit_code == -signal.SIGXCPU:
            reason, code = f"it took longer than {self._limits.deadline_s:g} s", TIMEOUT
        elif exit_code == -signal.SIGABRT:
            limit = self._limits.memory_mb
            reason, code = f"it ran out of memory (the limit is {limit} MiB) or failed", TOO_COMPLEX
        elif exit_code < 0:
            name = signal.Signals(-exit_code).name
            reason, code = f"it ended its process by {name}; most likely it is nested too deeply", TOO_COMPLEX
        else:
            reason, code = "it ended its process", TOO_COMPLEX
        return Verdict(outcome="killed", message=f"it cannot be compiled: {reason}", code=code)


def _verdict_of(payload: bytes) -> Verdict | None:
    """Return a child's answer; None if it is invalid, since a child may have corrupted its own memory."""
    try:
        return decode_verdict(payload) if payload else None
    except (msgspec.DecodeError, ValueError):
        return None
