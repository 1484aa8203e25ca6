"""Embedding through both kinds of client, with a real engine; the engine process is a real process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.request import EmbedRequest, Request, SamplingParams
from llmfw.core.client.client import EngineClient
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.engine.process.build import build_engine
from llmfw.core.plugin.plugins import load_plugins

from ...length import also
from ..engine.embedding.encoders import save_encoder

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = [[5] * 500] * 2000


@pytest_asyncio.fixture(params=["inproc", *also(["process"])], scope="module", loop_scope="module")
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineClient]:
    config = EngineConfig(
        model=save_encoder(tmp_path_factory.mktemp("encoder")), device="cpu", log_level="error"
    )
    client: EngineClient = ProcessEngineClient(config)
    if request.param == "inproc":
        client = InprocEngineClient(build_engine(config, load_plugins().registry))
    await client.start()
    yield client
    await client.close()


@pytest.mark.long
async def test_requests_get_their_own_vectors(client: EngineClient) -> None:
    assert (client.info.task, client.info.embedding_size) == ("embed", 64)
    requests = [EmbedRequest(id=str(i), prompts=[[i + 2, 9]] * (i + 1)) for i in range(8)]
    vectors = await asyncio.gather(*map(client.embed, requests))
    assert [len(each) for each in vectors] == [(i + 1) * 64 * 4 for i in range(8)]
    assert await client.embed(requests[3]) == vectors[3]


async def test_cancelling_aborts_the_embedding(client: EngineClient) -> None:
    task = asyncio.create_task(client.embed(EmbedRequest(id="a", prompts=MANY)))
    await asyncio.sleep(0.1)
    assert (await client.stats()).num_waiting > 0
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert (await client.stats()).num_waiting == 0


async def test_a_request_for_another_task_is_refused(client: EngineClient) -> None:
    asked = Request(id="a", prompt=[5], sampling=SamplingParams())
    with pytest.raises(LLMFWError, match="task is 'embed'"):
        [event async for event in client.generate(asked)]
    assert await client.embed(EmbedRequest(id="a", prompts=[[5]]))
