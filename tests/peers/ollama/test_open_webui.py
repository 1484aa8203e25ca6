"""Open WebUI's calls to an Ollama server, in the form in which it sends them."""

from __future__ import annotations

import json
from datetime import datetime

import httpx

from ...doubles.serving import SERVED_NAME, Served

MODEL = f"{SERVED_NAME}:latest"


def test_a_connection_is_verified_by_the_version(ollama: Served) -> None:
    version = httpx.get(f"{ollama.url}/api/version").json()["version"]
    assert all(part.isdigit() for part in version.split("."))


def test_models_and_their_expiry_can_be_merged(ollama: Served) -> None:
    [listed] = httpx.get(f"{ollama.url}/api/tags").json()["models"]
    [loaded] = httpx.get(f"{ollama.url}/api/ps").json()["models"]
    assert listed["name"] == listed["model"] == loaded["name"] == MODEL
    assert isinstance(listed["details"]["parameter_size"], str)
    assert len(listed["digest"]) == 64
    assert datetime.fromisoformat(loaded["expires_at"]).timestamp() > datetime.now().timestamp()
    assert datetime.fromisoformat(listed["modified_at"]).timestamp() <= datetime.now().timestamp()


def test_open_webui_s_chat_is_streamed(ollama: Served) -> None:
    payload = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "options": {"temperature": 0.7, "num_ctx": 2048},
        "keep_alive": "5m",
        "think": False,
    }
    headers = {"content-type": "application/json", "authorization": "Bearer none"}
    reply = httpx.post(f"{ollama.url}/api/chat", content=json.dumps(payload), headers=headers)
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == "Hi"
    assert {line["model"] for line in lines} == {MODEL}
    assert lines[-1]["eval_count"] / lines[-1]["eval_duration"] > 0  # its tokens per second


def test_errors_have_a_text_to_show(ollama: Served) -> None:
    reply = ollama.post("/api/chat", {"model": "gone", "messages": []})
    assert reply.status_code == 404
    assert reply.json() == {"error": f"model 'gone' not found; this server has {SERVED_NAME!r}"}


def test_the_openai_connection_lists_the_same_model(ollama: Served) -> None:
    assert httpx.get(f"{ollama.url}/v1/models").json()["data"][0]["id"] == SERVED_NAME
