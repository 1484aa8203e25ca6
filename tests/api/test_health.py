"""`/health_generate` asks the engine itself, once for all who ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from llmfw.api.health.probe import Probe
from llmfw.core.client.inproc import InprocEngineClient

from ..doubles.busy_engine import FULL, BusyEngine
from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import byte_tokenizer, serving


async def probed(engine: EchoEngine, num: int = 1, timeout_s: float = 5.0) -> list[str | None]:
    client = InprocEngineClient(engine)  # type: ignore[arg-type]
    await client.start()
    probe = Probe(client, timeout_s)
    try:
        return await asyncio.gather(*(probe.complaint() for _ in range(num)))
    finally:
        await client.close()


async def test_concurrent_probes_share_one_token() -> None:
    engine = EchoEngine(delay=0.05)
    assert await probed(engine, 20) == [None] * 20
    [request] = engine.requests
    assert request.sampling.max_tokens == 1


async def test_a_slow_engine_is_reported() -> None:
    [complaint] = await probed(EchoEngine(delay=1.0), timeout_s=0.1)
    assert complaint == "the engine has not computed one token within 0.1 s"


async def test_a_full_queue_is_reported() -> None:
    engine = BusyEngine()
    engine.refusals.append(FULL)
    [complaint] = await probed(engine)
    assert complaint == "the engine cannot compute one token: the queue is full: 8 requests wait"


@pytest.mark.parametrize("path", ["/health", "/health_generate"])
def test_health_needs_no_key(path: str, tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        assert httpx.get(served.url + path).json() == {"status": "ok"}
