"""Checks whether the engine works, by having it compute one token. Does not depend on HTTP."""

from __future__ import annotations

import asyncio
import uuid

from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.request import EmbedRequest, Request, SamplingParams
from llmfw.core.client.client import EngineClient

PROBE_S = 20.0
"""Longest time that the engine may take, in seconds."""

TOKEN = 0  # a token id that every model has


class Probe:
    """Asks the engine for one token. Simultaneous callers share one request, so frequent probes cost little.

    Args:
        client: client of the engine, already started.
        timeout_s: longest time that the engine may take, in seconds.
    """

    def __init__(self, client: EngineClient, timeout_s: float = PROBE_S) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._running: asyncio.Task[str | None] | None = None

    async def complaint(self) -> str | None:
        """Have the engine compute one token. Return None if this succeeds, else the reason of the failure."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(self._running)

    async def _run(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._compute()
        except TimeoutError:
            return f"the engine has not computed one token within {self._timeout_s:g} s"
        except LLMFWError as error:
            return f"the engine cannot compute one token: {error}"
        return None

    async def _compute(self) -> None:
        id = f"health-{uuid.uuid4().hex}"
        if self._client.info.task != "generate":
            await self._client.embed(EmbedRequest(id=id, prompts=[[TOKEN]]))
            return
        sampling = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)
        request = Request(id=id, prompt=[TOKEN], sampling=sampling, may_restart=True)
        async for _ in self._client.generate(request):
            pass
