"""A rank that dies or hangs ends its engine; the next engine continues what was open, and no rank is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import EngineError, ModelError, RankError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.request_progress import Continuations
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.watchdog import WatchdogLimits

from ..generation.tiny_models import SERVABLE, save_random_model

pytestmark = pytest.mark.long
NUM_TOKENS = 150
LIMIT_S = 240
"""Seconds that a busy machine may take."""


def config(folder: Path) -> EngineConfig:
    return EngineConfig(model=str(folder), device="cpu", dtype="float32", tp=2, context_length=256)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[SupervisedEngineClient]:
    save_random_model(tmp_path, *SERVABLE["llama"])
    make = partial(ProcessEngineClient, config(tmp_path), watchdog=WatchdogLimits(5.0, silent_s=60))
    client = SupervisedEngineClient(make, continuations=Continuations(0))
    await client.start()
    yield client
    await client.close()


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text() if folder.name.isdigit() else ""
        except OSError:
            continue
        if stat and int(stat.rpartition(")")[2].split()[1]) == pid:
            found.append(int(folder.name))
    return found


async def tokens(client: SupervisedEngineClient, number: int | None = None) -> list[int]:
    """Return the tokens of a reply. After its 20th token, the rank gets the signal `number`."""
    sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=1, seed=3)
    found: list[int] = []
    async for event in client.generate(Request(id=f"signal {number}", prompt=[5, 6], sampling=sampling)):
        assert event.error is None
        found += event.token_ids
        if number is not None and len(found) >= 20:
            assert client.pid is not None
            [rank] = children(client.pid)
            os.kill(rank, number)
            number = None
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_stream_survives_its_rank(client: SupervisedEngineClient, number: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        expected = await tokens(client)
        assert len(expected) == NUM_TOKENS
        assert await tokens(client, number) == expected
    assert client.num_restarts == 1


async def test_no_rank_is_left_by_a_killed_engine(client: SupervisedEngineClient) -> None:
    assert client.pid is not None
    [rank] = children(client.pid)
    os.kill(client.pid, signal.SIGKILL)
    limit = time.monotonic() + LIMIT_S
    while Path(f"/proc/{rank}").exists() and time.monotonic() < limit:
        await asyncio.sleep(0.01)
    assert not Path(f"/proc/{rank}").exists()


async def test_a_refused_model_names_its_reason(tmp_path: Path) -> None:
    """Both ranks refuse it; the client gets one line, and no engine is started again."""
    family, changes = SERVABLE["llama"]
    save_random_model(tmp_path, family, changes | {"intermediate_size": 97})
    client = ProcessEngineClient(config(tmp_path))
    with pytest.raises(ModelError, match=r"--tp is 2, and model\.layers\.0\.mlp\.gate_proj of \[97, 64\]"):
        await client.start()
    await client.close()


async def check_start_fails(folder: Path, rank: str, kind: type[EngineError], reason: str) -> None:
    """Check how the start of an engine fails whose rank 1 runs this code."""
    save_random_model(folder, *SERVABLE["llama"])
    code = (
        "from llmfw.core.engine.ranks import rank_processes\n"
        "from llmfw.core.engine.process.process import main\n"
        f"rank_processes.COMMAND = ({sys.executable!r}, '-c', {rank!r})\n"
        "main()"
    )
    client = ProcessEngineClient(config(folder), (sys.executable, "-c", code))
    with pytest.raises(kind, match=reason):
        await client.start()
    await client.close()


async def test_a_rank_that_cannot_start_is_reported(tmp_path: Path) -> None:
    await check_start_fails(
        tmp_path, "raise SystemExit(9)", RankError, "rank 1 ended with exit code 9 at the start"
    )


async def test_a_rank_s_unexpected_error_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The client gets its reason; the log has its traceback."""
    code = (
        "from llmfw.core.engine.generation.rank_worker import RankWorker\n"
        "from llmfw.core.engine.process.rank_main import main\n"
        "RankWorker.load = lambda self: 1 / 0\n"
        "main()"
    )
    await check_start_fails(tmp_path, code, EngineError, "ZeroDivisionError: division by zero")
    assert "ERROR" in (log := capfd.readouterr().err)
    assert "Rank 1 failed" in log
