"""A chat that a template renders slowly holds up nobody else, and does not keep the server from ending."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.plugins.chat_jinja.meter import Limits
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ..crash.server import echo_server
from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .http.test_errors import error_of

SLOW = (
    "{% if messages[-1].content == 'slow' or turns %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}{% endif %}{{ messages[-1].content }}"
)


class Slow(JinjaChatTemplate):
    limits = Limits(seconds=3)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tiny"))
    with serving(EchoEngine(), tokenizer, chat_template=Slow(SLOW, {})) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "slow"}]},
        {"messages": [*[{"role": "user", "content": "x"}] * 600, {"role": "user", "content": "slow"}]},
        {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"turns": 1}},
    ],
    ids=["messages", "many messages", "kwargs"],
)
def test_a_slow_template_is_refused_without_delaying_others(served: Served, fields: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(served.post, "/tokenize", fields)
        others = [
            served.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]}) for _ in range(5)
        ]
        assert not slow.done()
        assert [reply.status_code for reply in others] == [200] * 5
        refused = error_of(slow.result(), 400)
    assert refused["code"] == "chat_template_limit"
    # Which limit comes first depends on the machine.
    assert re.search("takes longer than 3 s|takes more than 20000000 steps", refused["message"])


@pytest.mark.long
def test_a_drain_does_not_wait_for_slow_templates(tmp_path: Path) -> None:
    template = tmp_path / "slow.jinja"
    template.write_text(SLOW)
    body = {"messages": [{"role": "user", "content": "slow"}]}
    with (
        echo_server(tmp_path / "server", "--chat-template", str(template), "--drain-timeout", "1") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http,
        ThreadPoolExecutor(9) as threads,
    ):
        for _ in range(9):
            threads.submit(http.post, "/tokenize", json=body)
        assert http.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).is_success
        assert server.stop() == 0
