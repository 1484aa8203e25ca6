"""Which prompts are embedded together, and how long one can wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.request import EmbedRequest
from llmfw.core.engine.embedding.embed_queue import MAX_PADDING, SLACK, EmbedQueue
from llmfw.core.schedule.deferral import Limits

BUDGET = 64
LENGTHS = st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=8), min_size=1, max_size=8)


def queue_of(lengths: list[list[int]]) -> EmbedQueue:
    queue = EmbedQueue(BUDGET, batch_size=6, window_tokens=200)
    for i, sizes in enumerate(lengths):
        queue.add(EmbedRequest(id=str(i), prompts=[[7] * size for size in sizes]))
    return queue


@given(LENGTHS)
def test_every_prompt_is_taken_once(lengths):
    queue = queue_of(lengths)
    taken = []
    while batch := queue.take():
        taken += [(waiting.request.id, waiting.index) for waiting in batch]
    assert sorted(taken) == [(str(i), j) for i, sizes in enumerate(lengths) for j in range(len(sizes))]
    assert len(queue) == 0


@given(LENGTHS, st.integers(1, 3))
def test_each_request_starts_within_one_round(lengths, num_tenants):
    """A request waits for as many batches as there are requests, for each tenant, however many prompts these have."""
    queue = EmbedQueue(BUDGET, batch_size=6, window_tokens=200)
    for i, sizes in enumerate(lengths):
        prompts = [[7] * size for size in sizes]
        queue.add(EmbedRequest(id=str(i), prompts=prompts, tenant=str(i % num_tenants)))
    begun = {waiting.request.id for _ in range(len(lengths) * num_tenants) for waiting in queue.take()}
    assert begun == {str(i) for i in range(len(lengths))}


def test_tenants_take_turns():
    """One tenant's fifty requests delay another's by one batch."""
    queue = EmbedQueue(BUDGET, batch_size=1, window_tokens=200)
    for i in range(50):
        queue.add(EmbedRequest(id=str(i), prompts=[[7] * 9], tenant="ann"))
    queue.add(EmbedRequest(id="last", prompts=[[7] * 9], tenant="bob"))
    assert [queue.take()[0].request.id for _ in range(3)] == ["0", "last", "1"]


def test_one_input_waits_for_one_batch_of_thousands():
    """Another tenant's input comes after the batch that runs and the next one."""
    queue = EmbedQueue(512, batch_size=128, window_tokens=16384)
    for i in range(6):
        queue.add(EmbedRequest(id=str(i), prompts=[[7] * 3] * 2047, tenant="ann"))
    queue.take()
    queue.add(EmbedRequest(id="one", prompts=[[7] * 2], tenant="bob"))
    begun = [waiting.request.id for _ in range(2) for waiting in queue.take()]
    assert begun.index("one") <= 128


@given(LENGTHS)
def test_batches_keep_the_budget_and_pad_little(lengths):
    queue = queue_of(lengths)
    while batch := queue.take():
        sizes = [len(waiting.prompt) for waiting in batch]
        assert len(batch) == 1 or max(sizes) * len(batch) <= BUDGET
        assert len(batch) <= 6
        assert max(sizes) <= MAX_PADDING * min(sizes) + SLACK


def test_a_removed_request_is_not_taken():
    queue = queue_of([[5, 5], [5]])
    queue.remove(EmbedRequest(id="0", prompts=[[7] * 5] * 2))
    assert [waiting.request.id for waiting in queue.take()] == ["1"]
    assert queue.take() == []


def mixed_queue(live: list[list[int]], deferrable: list[list[int]], share: float) -> EmbedQueue:
    queue = EmbedQueue(BUDGET, batch_size=6, window_tokens=200, share=share)
    for name, lengths in (("live", live), ("batch", deferrable)):
        for i, sizes in enumerate(lengths):
            prompts = [[7] * size for size in sizes]
            queue.add(EmbedRequest(id=f"{name} {i}", prompts=prompts, deferrable=name == "batch"))
    return queue


@given(LENGTHS, LENGTHS, st.sampled_from([0.0, 0.5, 1.0]))
def test_deferrable_prompts_do_not_displace_live_ones(live, deferrable, share):
    """Live prompts are batched as if alone; deferrable ones stay within their share."""
    queue, alone = mixed_queue(live, deferrable, share), mixed_queue(live, [], share)
    while expected := alone.take():
        batch = queue.take()
        assert batch[: len(expected)] == expected
        sizes = [len(waiting.prompt) for waiting in batch[len(expected) :]]
        assert all(waiting.request.deferrable for waiting in batch[len(expected) :])
        assert len(sizes) <= share * 6
        assert len(sizes) * max(sizes, default=0) <= share * BUDGET
    while queue.take():
        pass
    assert len(queue) == 0


def test_deferrable_prompts_fill_their_share_of_a_batch():
    queue = mixed_queue([[8]], [[8, 8, 8, 8]], share=0.5)
    assert [waiting.request.deferrable for waiting in queue.take()] == [False, True, True, True]


@given(LENGTHS, st.integers(1, 6), st.integers(1, BUDGET), st.integers(0, 9))
def test_deferrable_prompts_alone_keep_the_limits_given(lengths, places, tokens, tokens_per_place):
    queue = mixed_queue([], lengths, share=0)
    while batch := queue.take(Limits(places, tokens, tokens_per_place)):
        longest = max(len(waiting.prompt) for waiting in batch)
        assert len(batch) == 1 or len(batch) * (longest + tokens_per_place) <= tokens
        assert len(batch) <= places
