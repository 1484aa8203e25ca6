"""A line that ends the process is tried twice and then fails alone: no other line and no other job does."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.batches import job as job_module
from llmfw.api.batches.work_marks import NAME
from llmfw.core.interfaces.tokenizer import Tokenizer

from ...doubles.echo_engine import CRASH, EchoEngine
from .rig import Line, Rig, chat_line, chat_lines, running

Stores = dict[str, Any]
MOMENTS = ("before the engine", "after the engine")


def completion_line(custom_id: str, prompt: list[int]) -> Line:
    """Return an input line that asks for a completion of tokens."""
    body = {"prompt": prompt, "max_tokens": 4}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}


class Death:
    """Stands for the end of the process: what is marked at that moment is all that the next one finds.

    Attributes:
        tries: how often each poisonous line was begun, by its text.
    """

    def __init__(self, folder: Path) -> None:
        self.has_come = asyncio.Event()
        self.tries: Counter[str] = Counter()
        self._marks = folder / f"{NAME}.0"
        self._kept = folder / "kept"

    async def come(self, cause: str) -> None:
        """End the process. Never returns."""
        if not self.has_come.is_set():
            self.tries[cause] += 1
            shutil.copy(self._marks, self._kept)
            self.has_come.set()
        await asyncio.Event().wait()

    def revive(self) -> None:
        """Let the next process begin with what this one left."""
        if self.has_come.is_set():
            shutil.copy(self._kept, self._marks)
            self.has_come.clear()


def poisoned(rig: Rig, death: Death, moment: str) -> None:
    """Let each line whose text has "poison" end the process at a moment."""
    endpoints = rig.services.batches._runner._context.endpoints
    real: Callable[[str, bytes, str | None], Any] = endpoints.answer

    async def answer(path: str, body: bytes, model: str | None) -> Any:
        text = body.decode()
        if moment == MOMENTS[0] and "poison" in text:
            await death.come(text)
        answer = await real(path, body, model)
        if "poison" in text:
            await death.come(text)
        return answer

    endpoints.answer = answer  # type: ignore[method-assign]


async def all_ended(rig: Rig, ids: list[str]) -> None:
    for batch_id in ids:
        await rig.ended(batch_id, 30)


async def run_to_the_end(
    tokenizer: Tokenizer, stores: Stores, folder: Path, jobs: list[list[Any]], moment: str
) -> tuple[Death, list[list[Any]], int]:
    """Run jobs in one process after the other; return their lines of both files, and how many processes died."""
    death, ids, num_deaths = Death(folder), [], 0
    while True:
        async with running(
            tokenizer, stores, EchoEngine(), crash=True, lease_s=0.05, storage=str(folder)
        ) as rig:
            poisoned(rig, death, moment)
            ids = ids or [await rig.create(lines) for lines in jobs]
            ends = [asyncio.create_task(all_ended(rig, ids)), asyncio.create_task(death.has_come.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            if ends[0].done() and not death.has_come.is_set():
                ends[0].result()
                outcomes = [await rig.outcome(await rig.batches.get(id)) for id in ids]
                return death, [output + errors for output, errors in outcomes], num_deaths
        num_deaths += 1
        assert num_deaths < 40, "it does not end"
        death.revive()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
async def test_guilty_lines_are_tried_twice_and_fail_alone(
    tokenizer: Tokenizer, stores: Stores, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    jobs, guilty = [], set()
    for j in range(draw.randint(1, 4)):
        lines = chat_lines(draw.randint(1, 60), f"job{j} ")
        for i in draw.sample(range(len(lines)), min(len(lines), draw.randint(0, 3))):
            lines[i] = chat_line(f"c{i}", f"poison {j} {i}")
            guilty.add((j, f"c{i}"))
        jobs.append(lines)
    death, found, num_deaths = await run_to_the_end(tokenizer, stores, tmp_path, jobs, MOMENTS[seed % 2])
    assert set(death.tries.values()) <= {2}
    assert num_deaths == 2 * len(guilty)
    for j, (asked, got) in enumerate(zip(jobs, found, strict=True)):
        assert sorted(line["custom_id"] for line in got) == sorted(line["custom_id"] for line in asked)
        for line in got:
            is_guilty = (j, line["custom_id"]) in guilty
            assert (line["error"] or {}).get("code") == ("line_crashed_server" if is_guilty else None)
            assert is_guilty or line["response"]["status_code"] == 200


async def test_jobs_next_to_guilty_lines_do_not_fail(
    tokenizer: Tokenizer, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = job_module.write_files

    async def slow(*args: Any) -> Any:
        await asyncio.sleep(0.1)  # so that lines of the other job crash the server meanwhile
        return await real(*args)

    monkeypatch.setattr(job_module, "write_files", slow)
    poison = [chat_line(f"c{i}", f"poison {i}") for i in range(4)]
    _, found, num_deaths = await run_to_the_end(
        tokenizer, stores, tmp_path, [chat_lines(2), poison], MOMENTS[0]
    )
    assert num_deaths == 8
    assert [line["response"]["status_code"] for line in found[0]] == [200, 200]
    assert [line["error"]["code"] for line in found[1]] == ["line_crashed_server"] * 4


async def test_kills_while_lines_wait_blame_none(
    tokenizer: Tokenizer, stores: Stores, tmp_path: Path
) -> None:
    death, batch_id = Death(tmp_path), ""
    for _ in range(6):
        async with running(
            tokenizer, stores, EchoEngine(delay=0.02), crash=True, lease_s=0.05, storage=str(tmp_path)
        ) as rig:
            batch_id = batch_id or await rig.create(chat_lines(5, "x" * 300))
            await rig.reaches(batch_id, "in_progress")
            await asyncio.sleep(0.1)
            dying = asyncio.create_task(death.come("a kill"))
            await death.has_come.wait()
            dying.cancel()
        death.revive()
    async with running(tokenizer, stores, storage=str(tmp_path)) as rig:
        record = await rig.ended(batch_id)
    assert (record.num_completed, record.line_crashes) == (5, ())


async def test_a_line_that_kills_engines_twice_fails(
    tokenizer: Tokenizer, stores: Stores, tmp_path: Path
) -> None:
    lines = [completion_line(f"c{i}", [CRASH if i == 5 else 65]) for i in range(10)]
    batch_id, num_deaths = "", 0
    while True:
        async with running(tokenizer, stores, storage=str(tmp_path)) as rig:
            batch_id = batch_id or await rig.create(lines, endpoint="/v1/completions")
            client = rig.services.models.first.live.generator.client
            while client.failure is None and (await rig.batches.get(batch_id)).status != "completed":
                await asyncio.sleep(0.01)
            if client.failure is None:
                break
            num_deaths += 1
    record = await stores["batches"].get(batch_id)
    assert (num_deaths, record.num_completed, record.num_failed) == (2, 9, 1)


@pytest.mark.parametrize("state", ["validating", "finalizing"])
async def test_a_thrice_crashing_job_fails_alone(
    tokenizer: Tokenizer, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    death, ids = Death(tmp_path), []
    name = {"validating": "validate", "finalizing": "write_files"}[state]
    real = getattr(job_module, name)

    async def deadly(first: Any, second: Any, *rest: Any) -> Any:
        if ids and (await stores["batches"].get(ids[0])).status == state and not death.has_come.is_set():
            record = await stores["batches"].get(ids[0])
            if record.input_file_id == second or getattr(first, "id", "") == ids[0]:
                await death.come(state)
        return await real(first, second, *rest)

    monkeypatch.setattr(job_module, name, deadly)
    for _ in range(3):
        async with running(tokenizer, stores, crash=True, lease_s=0.05, storage=str(tmp_path)) as rig:
            if not ids:
                ids.append(await rig.create(chat_lines(3)))
                ids.append(await rig.create(chat_lines(3)))
            await asyncio.wait_for(death.has_come.wait(), 10)
        death.revive()
    async with running(tokenizer, stores, storage=str(tmp_path)) as rig:
        ill, well = [await rig.ended(batch_id) for batch_id in ids]
    assert (ill.status, [error.code for error in ill.errors]) == ("failed", ["batch_crashed_server"])
    assert (well.status, well.num_completed) == ("completed", 3)
