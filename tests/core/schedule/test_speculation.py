"""Drafts change how many tokens a step brings, never which, and never what others get."""

from __future__ import annotations

import random

import pytest

from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.base.step import StepOutput
from llmfw.core.schedule.outputs import kept_tokens
from llmfw.core.schedule.plan import PlannedSequence

from .driver import Driver, drive_at_random
from .lucky_drafter import speculation
from .plans import plan_of


def run(driver: Driver, *, max_tokens: int = 40, **fields: object) -> int:
    """Run one request to its end; return how many steps it took."""
    driver.add("a", [5, 6, 7], max_tokens, **fields)  # type: ignore[arg-type]
    steps = 0
    while driver.scheduler.has_work:
        driver.step()
        steps += 1
    driver.check_outputs()
    driver.pages.check_nothing_leaked()
    return steps


@pytest.mark.long
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(4))
def test_no_draft_changes_outputs_or_leaks_pages(seed: int, page_size: int) -> None:
    rng = random.Random(seed)
    drafts = speculation(rng, rng.choice([0.2, 0.9]), shy=0.3, max_tokens=rng.choice([4, 16, 64]))
    driver = Driver(
        page_size=page_size,
        num_tokens=rng.choice([64, 256]),
        budget=rng.choice([7, 32]),
        max_running=rng.choice([3, 8]),
        chunked=rng.random() < 0.8,
        conservativeness=0.05,
        speculation=drafts,
    )
    drive_at_random(driver, rng, 600, deferrable=0.2)
    driver.finish()
    driver.check_outputs()
    assert drafts.num_drafted > drafts.num_accepted > 0
    assert not drafts._sequences


def test_accepted_drafts_bring_several_tokens_a_step() -> None:
    # One step for the prompt and the first token; of the 40 others a step brings five.
    assert run(Driver(speculation=speculation(random.Random(1), max_draft=4)), max_tokens=41) == 9
    assert run(Driver(speculation=speculation(random.Random(1), 0.0))) == 40


def test_draft_length_follows_acceptance() -> None:
    drafts = speculation(random.Random(1), 0.0, max_draft=8)
    driver = Driver(speculation=drafts)
    driver.add("a", [5, 6, 7], 60)
    limits = []
    for i in range(12):
        driver.step()
        limits.append(drafts._sequences["a"].limit if drafts._sequences else None)
        drafts._drafter._drafter.chance = float(i >= 4)  # type: ignore[attr-defined]
    assert limits[1] == 1
    assert limits[4:8] == [1, 2, 4, 8]


def test_max_tokens_is_never_exceeded() -> None:
    for max_tokens in range(1, 12):
        driver = Driver(speculation=speculation(random.Random(max_tokens)))
        run(driver, max_tokens=max_tokens)
        assert driver.ended["a"] is FinishReason.LENGTH
        assert len(driver.output["a"]) == max_tokens


@pytest.mark.parametrize("seed", range(10))
def test_a_stop_token_within_a_draft_ends_output(seed: int) -> None:
    driver = Driver(speculation=speculation(random.Random(seed)))
    driver.add("a", [seed, 3], 200, stops=True)
    driver.finish()
    driver.check_outputs()
    assert driver.ended["a"] is FinishReason.STOP


def test_steps_with_prompt_tokens_hold_no_drafts() -> None:
    driver = Driver(speculation=speculation(random.Random(1)), budget=8)
    driver.add("a", [1, 2, 3], 40)
    for _ in range(3):
        driver.step()
    driver.add("b", list(range(1, 21)) * 3, 2)
    plans = []
    while not driver.output["b"]:
        plans.append(driver.step())
    assert len(plans) == 8
    assert not any(plan.drafts for plan in plans)
    assert driver.step().drafts


def test_drafts_shrink_as_more_requests_run() -> None:
    longest = {}
    for num_running in (1, 2, 4, 8):
        driver = Driver(speculation=speculation(random.Random(1), max_tokens=8), max_running=8)
        for i in range(num_running):
            driver.add(str(i), [i + 1, 2, 3], 12)
        plans = [driver.step() for _ in range(3)]
        longest[num_running] = plans[-1].num_drafted / num_running
        assert all(plan.num_tokens <= 8 for plan in plans[1:])
    assert longest[1] == 4
    assert 4 >= longest[2] >= longest[4] > longest[8] == 0


def test_drafts_leave_pages_for_running_sequences() -> None:
    driver = Driver(speculation=speculation(random.Random(1)), num_tokens=32)
    driver.add("a", [1, 2, 3], 25)
    plans = [driver.step() for _ in range(30)]
    assert any(plan.drafts for plan in plans)
    assert all(not plan.drafts for plan in plans if len(plan.sequences) and plan.starts[0] > 32 - 20)
    assert driver.scheduler.num_retractions == 0


def test_rejected_drafts_are_not_cached() -> None:
    driver = Driver(speculation=speculation(random.Random(1), 0.5))
    driver.add("a", [1, 2, 3], 60)
    for _ in range(8):
        driver.step()
    known = [1, 2, 3, *driver.output["a"]]
    driver.abort("a")
    driver.add("b", [*known, 4], 2)  # reads every cached page of it, whose hashes the model checks
    driver.finish()
    driver.check_outputs()
    assert driver.cached["b"] == len(known) - 1


def test_an_abort_during_verification_is_safe() -> None:
    driver = Driver(speculation=speculation(random.Random(1)))
    driver.add("a", [1, 2, 3], 60)
    driver.step()
    plan = driver.plan()
    assert plan.drafts
    result = driver.model.run(plan)
    driver.abort("a")
    assert driver.scheduler.commit(plan, StepOutput(result)) == []
    driver.pages.check_nothing_leaked()


def test_sampled_tokens_count_up_to_the_mismatch() -> None:
    driver = Driver()
    driver.add("a", [1], 9)
    [seq] = driver.scheduler._sequences.values()

    def planned(*drafts: int) -> PlannedSequence:
        return PlannedSequence(seq, 0, 0, 1 + len(drafts), True, False, False, drafts)

    plan = plan_of([planned(4, 5), planned(), planned(7)])
    order = [len(part.drafts) for part in plan.parts]
    assert order == [0, 2, 1]
    assert kept_tokens(plan, [9, 4, 8, 6, 7, 3]) == [[9], [4, 8], [7, 3]]
    assert kept_tokens(plan, [9, 1, 5, 6, 0, 3]) == [[9], [1], [0]]
    assert plan.step.sampled[2].tolist() == [1, 1, 2, 3, 1, 2]
    assert plan.step.num_sampled.tolist() == [1, 3, 2]


PENALTIES = [{"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.1}]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_penalties_disable_drafts_for_their_request_only(penalty: dict[str, float]) -> None:
    driver = Driver(speculation=speculation(random.Random(1)))
    driver.add("a", [1, 2, 3], 30)
    sampling = SamplingParams(max_tokens=30, **penalty)  # type: ignore[arg-type]
    driver.output["b"] = []
    driver.scheduler.add(Request(id="b", prompt=[4], sampling=sampling))
    plans = [driver.step() for _ in range(4)]
    drafted = {part.seq.id for plan in plans for part in plan.parts if part.drafts}
    assert drafted == {"a"}
