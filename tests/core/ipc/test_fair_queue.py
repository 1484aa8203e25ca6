"""Tenants are served in turns, however many jobs each has."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.request import GrammarSpec
from llmfw.core.grammars.messages import Job
from llmfw.core.ipc.fair_queue import FairQueue

SPEC = GrammarSpec("regex", "a")


def test_a_short_line_overtakes_a_long_one() -> None:
    queue = FairQueue[Job](100)
    for i in range(50):
        queue.add(Job(i, "many", SPEC))
    queue.add(Job(99, "one", SPEC))
    assert 99 in [job.id for job in (queue.pop(), queue.pop()) if job is not None]


def test_a_full_queue_drops_from_the_longest_line() -> None:
    queue = FairQueue[Job](3)
    assert all(queue.add(Job(i, "many", SPEC)) and queue.shed() is None for i in range(3))
    assert not queue.add(Job(3, "many", SPEC))
    assert queue.add(Job(4, "one", SPEC))
    dropped = queue.shed()
    assert dropped is not None
    assert (dropped.id, len(queue)) == (2, 3)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "pop", "remove"]), st.sampled_from("abc"), st.integers(0, 20)))
)
def test_each_job_leaves_once_in_tenant_order(moves: list[tuple[str, str, int]]) -> None:
    queue, lines = FairQueue[Job](8), {tenant: deque[int]() for tenant in "abc"}
    for number, (move, tenant, which) in enumerate(moves):
        if move == "add":
            if queue.add(Job(number, tenant, SPEC)):
                lines[tenant].append(number)
                dropped = queue.shed()
                if dropped is not None:
                    assert lines[dropped.tenant].pop() == dropped.id
        elif move == "remove":
            found = [id for line in lines.values() for id in line]
            job_id = found[which % len(found)] if found else -1
            assert queue.remove(job_id) == bool(found)
            for line in lines.values():
                if job_id in line:
                    line.remove(job_id)
        else:
            job = queue.pop()
            assert (job is None) == (not any(lines.values()))
            if job is not None:
                assert lines[job.tenant].popleft() == job.id
        assert len(queue) == sum(map(len, lines.values())) <= 8
