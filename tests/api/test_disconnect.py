"""A client that goes away frees what it held."""

from __future__ import annotations

import httpx
import pytest

from ..doubles.echo_engine import WAIT
from ..doubles.serving import SERVED_NAME, Served, wait_until


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_disconnect_ends_the_requests(server: Served, stream: bool, n: int) -> None:
    before = len(server.engine.aborted)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/v1/completions",
            json={"prompt": [WAIT], "n": n, "stream": stream, "max_tokens": 100},
            timeout=httpx.Timeout(5, read=0.3),
        ).raise_for_status()
    wait_until(lambda: len(server.engine.aborted) == before + n)
    assert not server.engine.has_work


def test_closing_an_sdk_stream_ends_its_request(server: Served) -> None:
    before = len(server.engine.aborted)
    with server.openai() as sdk:
        stream = sdk.completions.create(model=SERVED_NAME, prompt="x" * 200, max_tokens=200, stream=True)
        next(iter(stream))
        stream.close()
    wait_until(lambda: len(server.engine.aborted) == before + 1)
