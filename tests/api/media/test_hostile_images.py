"""Hostile images over HTTP get an answer each, and delay nobody else's."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ...doubles.echo_engine import EchoEngine
from ...doubles.picture_files import file_of, hostile_files, picture_of
from ...doubles.seeing import TEMPLATE, SeeingPrompts
from ...doubles.serving import Served, byte_tokenizer, serving
from ...length import of_length


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    parts = {"image_prompts": SeeingPrompts(tokenizer), "reasoning_parser": None, "tool_parser": None}
    with serving(EchoEngine(), tokenizer, TEMPLATE, max_image_mb=2, **parts) as found:
        yield found


def ask(client: httpx.Client, data: bytes) -> httpx.Response:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    body = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    return client.post("/v1/chat/completions", json=body, timeout=60)


def test_hostile_images_over_http(served: Served) -> None:
    """Meanwhile another client's texts and images are answered, each of them."""
    files = hostile_files()[:: of_length(6, 1)]
    ended = threading.Event()

    def others() -> int:
        answered = 0
        with httpx.Client(base_url=served.url) as client:
            while not ended.is_set() or not answered:
                assert served.chat("Hello").json()["choices"][0]["message"]["content"] == "Hello"
                assert ask(client, file_of(picture_of(8, 9), "PNG")).status_code == 200
                answered += 1
        return answered

    with ThreadPoolExecutor(5) as threads, httpx.Client(base_url=served.url) as client:
        meanwhile = threads.submit(others)
        try:
            replies = [*threads.map(lambda file: ask(client, file[1]), files)]
        finally:
            ended.set()
        assert meanwhile.result() > 0
    for (name, _), reply in zip(files, replies, strict=True):
        assert reply.status_code in (200, 400), (name, reply.text)
        if reply.status_code == 400:
            error = reply.json()["error"]
            assert error["param"] == "messages[0].content[0].image_url", name
            assert error["code"] == "invalid_image", name
