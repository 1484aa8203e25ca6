"""What the server was started with decides on replies: where thinking stands, sampling defaults, strictness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving

THOUGHT = "<think>Hmm.</think>Yes."


@contextmanager
def started(folder: Path, **options: Any) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(folder, MARKERS), **options) as served:
        yield served


@pytest.mark.parametrize(
    ("field", "names"),
    [("reasoning", {"reasoning"}), ("both", {"reasoning", "reasoning_content"})],
)
def test_thinking_is_in_the_configured_field(tmp_path: Path, field: str, names: set[str]) -> None:
    with started(tmp_path, reasoning_field=field) as server:
        message = server.chat(THOUGHT).json()["choices"][0]["message"]
        streamed = server.chat(THOUGHT, stream=True).text
    assert {name for name in message if "reasoning" in name} == names
    assert all(message[name] == "Hmm." for name in names)
    assert all((f'"{name}":' in streamed) is (name in names) for name in ("reasoning", "reasoning_content"))


def test_sampling_defaults_come_from_the_model(tmp_path: Path) -> None:
    defaults = {"temperature": 0.6, "top_k": 20}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/generate", {"text": "Hi"}),
    ]
    with started(tmp_path, sampling_defaults=defaults) as server:
        for path, body in bodies:
            assert server.post(path, body).status_code == 200
            sampling = server.engine.requests[-1].sampling
            assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 20, 1.0)
        server.chat("Hi", temperature=1.5)
        assert server.engine.requests[-1].sampling.temperature == 1.5
        info = httpx.get(f"{server.url}/get_model_info").json()
    assert info["sampling_defaults"] == defaults


def test_without_model_defaults_openai_s_apply(server: Served) -> None:
    server.chat("Hi")
    assert server.engine.requests[-1].sampling.temperature == 1.0
    assert httpx.get(f"{server.url}/get_model_info").json()["sampling_defaults"] == {}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/generate", {"text": "Hi"}),
    ],
)
def test_strict_params_refuse_ignored_fields(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with started(tmp_path, strict_params=True) as server:
        assert server.post(path, body).status_code == 200
        error = server.post(
            path, {**body, "frobnicate": 1, "safety_identifier": "me", "prompt_cache_key": "me"}
        ).json()["error"]
    assert error["param"] == "frobnicate"
    assert "frobnicate, prompt_cache_key" in error["message"]
