"""`GET /load`: how busy the engine is."""

from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.datastructures import State
from litestar.params import Parameter

from llmfw.core import EngineClient


class Load(msgspec.Struct, frozen=True):
    """How busy the engine is.

    Attributes:
        running, waiting: requests of clients that wait for an answer.
        batch_running, batch_waiting: lines of batches.
        kv_in_use: share of the storage for keys and values that running requests hold.
        generated_tokens: since the server started.
    """

    running: int
    waiting: int
    batch_running: int
    batch_waiting: int
    kv_in_use: float
    generated_tokens: int


async def load_of(client: EngineClient) -> Load:
    """Return how busy an engine is now."""
    stats = await client.stats()
    used = stats.num_used_tokens / stats.num_total_tokens if stats.num_total_tokens else 0.0
    return Load(
        running=stats.num_running - stats.num_deferrable_running,
        waiting=stats.num_waiting - stats.num_deferrable_waiting,
        batch_running=stats.num_deferrable_running,
        batch_waiting=stats.num_deferrable_waiting,
        kv_in_use=round(used, 4),
        generated_tokens=stats.num_generated_tokens,
    )


@get("/load")
async def load(state: State, max_waiting: Annotated[int | None, Parameter(ge=0)] = None) -> Response[Load]:
    """Answer by how busy the engine is; with 503 where more requests of clients wait than `max_waiting`."""
    found = await load_of(state.client)
    too_many = max_waiting is not None and found.waiting > max_waiting
    return Response(found, status_code=503 if too_many else 200)
