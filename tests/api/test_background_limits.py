"""Background responses leave the engine to clients that wait, and are bounded in number."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from llmfw.api.responses import background as module
from llmfw.api.responses.background import Background
from llmfw.api.text.by_model import ByModel
from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.errors import OverloadedError, TenantLimitError


def background_of(max_running: int) -> Background:
    return Background(ByModel([(ModelNames("m", ""), max_running)]))


class Jobs:
    """Background jobs that run until they are told to end; notes how many have their turn at once."""

    def __init__(self, max_running: int) -> None:
        self.background = background_of(max_running)
        self.end = asyncio.Event()
        self.begun: list[str] = []

    def add(self, name: str, tenant: str = "", num_bytes: int = 1) -> None:
        job: Any = SimpleNamespace(response=SimpleNamespace(id=name, model="m"), tenant=tenant)
        self.background.check(tenant, num_bytes)
        self.background.start(job, num_bytes, self._work(job))

    async def _work(self, job: Any) -> None:
        async with self.background.turn(job):
            self.begun.append(job.response.id)
            await self.end.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_background_jobs_take_about_half_the_places() -> None:
    jobs = Jobs(max_running=32)
    for i in range(50):
        jobs.add(str(i))
    await settle()
    assert len(jobs.begun) == 18  # half, and a short queue behind them
    jobs.end.set()
    await settle()
    assert len(jobs.begun) == 50


async def test_one_tenant_s_backlog_delays_no_other() -> None:
    jobs = Jobs(max_running=8)
    for i in range(50):
        jobs.add(f"a{i}", "ann")
    await settle()
    jobs.add("b", "bob")
    first, _ = jobs.background._running["a0"]
    await jobs.background.stop(first.response.id)
    await settle()
    assert jobs.begun[-1] == "b"


async def test_a_queued_job_can_be_stopped() -> None:
    jobs = Jobs(max_running=2)
    for name in "abcdef":
        jobs.add(name)
    await settle()
    assert await jobs.background.stop("f") is not None
    jobs.end.set()
    await settle()
    assert sorted(jobs.begun) == list("abcde")


async def test_too_many_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 3)
    monkeypatch.setattr(module, "MAX_OF_TENANT", 2)
    jobs = Jobs(max_running=8)
    jobs.add("a1", "ann")
    jobs.add("a2", "ann")
    with pytest.raises(TenantLimitError, match="2 background responses are open"):
        jobs.add("a3", "ann")
    jobs.add("b1", "bob")
    with pytest.raises(OverloadedError, match="3 background responses are open"):
        jobs.add("b2", "bob")
    await jobs.background.close()


async def test_clients_without_keys_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OF_TENANT", 1)
    jobs = Jobs(max_running=8)
    jobs.add("a")
    jobs.add("b")
    await jobs.background.close()


async def test_large_bodies_are_bounded_together() -> None:
    jobs, size = Jobs(max_running=8), module.MAX_OPEN_BYTES // 3
    jobs.add("a1", "ann", size)
    with pytest.raises(TenantLimitError):
        jobs.add("a2", "ann", size)
    jobs.add("b1", "bob", size)
    with pytest.raises(OverloadedError):
        jobs.add("c1", "cid", 2 * size)
    await jobs.background.close()
    await settle()
    jobs.add("a2", "ann", size)
    await jobs.background.close()


async def test_a_single_body_is_never_too_large() -> None:
    jobs = Jobs(max_running=8)
    jobs.add("a", "ann", module.MAX_OPEN_BYTES + 1)
    await jobs.background.close()


async def test_a_task_that_ignores_its_end_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.05)
    background, end = background_of(8), asyncio.Event()

    async def stubborn() -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    job: Any = SimpleNamespace(response=SimpleNamespace(id="a", model="m"), tenant="")
    background.start(job, 1, stubborn())
    await settle()
    jobs = await background.close()
    end.set()
    await settle()
    assert jobs == [job]
    assert "response a still runs 0.05 s after it was cancelled; it is left alone: " in caplog.text
    assert "stubborn" in caplog.text
