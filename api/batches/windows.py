"""The limits on the batch lines in flight, one for each model's engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

from llmfw.api.background.window import Window
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import LLMFWError
from llmfw.core.client.client import EngineClient


class Windows:
    """The window of each model. Lines of one model never wait for the engine of another model.

    Args:
        clients: started clients of the models' engines.
    """

    def __init__(self, clients: ByModel[EngineClient]) -> None:
        self._windows = clients.map(lambda client: (client, Window(client.info.max_running_requests)))

    def of(self, model: str | None) -> Window:
        """Return the window of a model; None: of the first model."""
        return self._windows.of(model)[1]

    @contextlib.asynccontextmanager
    async def alone(self, job: Hashable) -> AsyncIterator[None]:
        """Run a block of a job's work while no line of any job is in flight."""
        async with contextlib.AsyncExitStack() as stack:
            for _, window in self._windows:
                await stack.enter_async_context(window.alone(job))
            yield

    async def look(self) -> None:
        """Adapt the limits to the lengths of the engines' queues (see `Window.look`)."""
        await asyncio.gather(*(_look(client, window) for client, window in self._windows if window.total))


async def _look(client: EngineClient, window: Window) -> None:
    with contextlib.suppress(LLMFWError):
        window.look((await client.stats()).num_deferrable_waiting)
