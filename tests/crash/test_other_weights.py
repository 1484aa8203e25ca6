"""A running server takes other weights: its answers are those of a fresh server of that checkpoint."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.torch import load_file, save_file

from llmfw.plugins.model_demo.source import DemoModel

from ..length import also
from .server import ServerProcess

pytestmark = pytest.mark.slow

SMALL = ("--max-total-tokens", "2048")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model, and one with other weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("first", "second"):
        shutil.copytree(DemoModel().folder(), folder / name)
        if name != "first":
            tensors = load_file(folder / name / "model.safetensors")
            for key, tensor in tensors.items():
                if "mlp" in key:
                    tensor.mul_(0.9)
            save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder


def answer(http: httpx.Client) -> tuple[str, str]:
    message = {"role": "user", "content": "Tell me a story about a dog."}
    body: dict[str, Any] = {
        "model": "first",
        "messages": [message],
        "temperature": 1,
        "seed": 3,
        "max_tokens": 40,
    }
    reply = http.post(
        "/v1/chat/completions", json=body | {"model": http.get("/v1/models").json()["data"][0]["id"]}
    )
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"], reply.json()["system_fingerprint"]


def version(http: httpx.Client) -> str:
    return str(http.get("/v1/models").json()["data"][0]["weight_version"])


@pytest.fixture(scope="module")
def fresh(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    with (
        ServerProcess(
            tmp_path_factory.mktemp("fresh"), "--model", str(checkpoints / "second"), *SMALL
        ) as server,
        httpx.Client(base_url=server.url, timeout=120) as http,
    ):
        return answer(http)


@pytest.mark.parametrize("replicas", [1, *also([2])])
def test_answers_are_those_of_a_fresh_server(
    checkpoints: Path, fresh: tuple[str, str], tmp_path: Path, replicas: int
) -> None:
    options = ("--model", str(checkpoints / "first"), "--weights-from", str(checkpoints), *SMALL)
    with (
        ServerProcess(tmp_path, *options, "--replicas", str(replicas)) as server,
        httpx.Client(base_url=server.url, timeout=120) as http,
    ):
        before, first = answer(http), version(http)
        assert before != fresh
        for path, said in (
            ("../elsewhere", "not below the folder"),
            (str(checkpoints / "none"), "which is no folder"),
            (str(checkpoints), "has no config.json"),
        ):
            refused = http.post("/admin/weights", json={"path": path})
            assert (refused.status_code, said in refused.text) == (400, True), refused.text
        assert version(http) == first
        loaded = http.post("/admin/weights", json={"path": "second"})
        assert loaded.status_code == 200, loaded.text
        assert loaded.json()["weight_version"] == version(http) != first
        assert answer(http) == fresh
        assert http.get("/v1/models").json()["data"][0]["id"] == "first"
        assert http.post("/admin/weights", json={"path": str(checkpoints / "first")}).status_code == 200
        assert answer(http) == before
        assert version(http) == first
        restarts = re.findall(r"(?m)^llmfw_engine_restarts_total\S* (\S+)", http.get("/metrics").text)
        assert [float(each) for each in restarts] == [0.0] * replicas
        assert server.stop() == 0
