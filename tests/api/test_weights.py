"""Which checkpoints an administrator may load: those of the same form, in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from llmfw.api.admin.weights import WeightsService
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo
from llmfw.plugins.model_demo.source import DemoModel

from ..doubles.serving import Served


class Client:
    """Records the commands that it gets."""

    def __init__(self, model: str) -> None:
        self.info = SimpleNamespace(model=model)
        self.commands: list[LoadWeights] = []

    async def control(self, command: LoadWeights) -> WeightsInfo:
        self.commands.append(command)
        return WeightsInfo(command.path, "v2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the checkpoint "good"; outside of it is "other"."""
    for name in ("runs/good", "other"):
        shutil.copytree(DemoModel().folder(), tmp_path / name)
    (tmp_path / "runs/link").symlink_to(tmp_path / "other")
    return tmp_path / "runs"


def service(folder: Path | None, model: str | None = None) -> tuple[WeightsService, Client]:
    client = Client(model or DemoModel().folder())
    return WeightsService(client, None if folder is None else str(folder)), client  # type: ignore[arg-type]


async def test_checkpoints_in_the_folder_are_loaded(folder: Path) -> None:
    weights, client = service(folder)
    for path in ("good", str(folder / "good"), "../runs/./good"):
        assert (await weights.load(path, 3.0, waits=True)).version == "v2"
    assert client.commands == [LoadWeights(str(folder / "good"), 3.0, aborts=False)] * 3
    await weights.load("good", 3.0, waits=False)
    assert client.commands[-1].aborts


@pytest.mark.parametrize(
    "path", ["../other", "link", "/", "..", "good/../../other", "/proc/self/cwd", "~", "a\0b", "x" * 5000]
)
async def test_other_places_are_not_read(folder: Path, path: str) -> None:
    weights, client = service(folder)
    with pytest.raises(RequestError) as caught:
        await weights.load(path, 3.0, waits=True)
    assert caught.value.param == "path"
    assert client.commands == []


async def test_differences_are_named_before_the_change(folder: Path) -> None:
    weights, client = service(folder)
    config = json.loads((folder / "good/config.json").read_text())
    (folder / "good/config.json").write_text(json.dumps(config | {"rope_theta": 7.0}))
    with pytest.raises(RequestError, match=r"its rope_theta is 7\.0") as caught:
        await weights.load("good", 3.0, waits=True)
    assert caught.value.code == "weights_not_loaded"
    assert client.commands == []


async def test_files_are_compared_with_those_of_the_start(folder: Path) -> None:
    """The served checkpoint may be written over; the server still has its old tokenizer."""
    weights, client = service(folder, str(folder / "good"))
    path = folder / "good/tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "2.0"}))
    with pytest.raises(RequestError, match=r"its tokenizer\.json differs"):
        await weights.load("good", 3.0, waits=True)
    assert client.commands == []


@pytest.mark.parametrize(
    ("has_folder", "model", "said"),
    [(False, None, "start it with --weights-from FOLDER"), (True, "other", "only weights in safetensors")],
)
async def test_servers_that_cannot_say_so(folder: Path, has_folder: bool, model: Any, said: str) -> None:
    (folder.parent / "other/model.safetensors").unlink()
    given = None if model is None else str(folder.parent / model)
    weights, client = service(folder if has_folder else None, given)
    with pytest.raises(RequestError, match=said) as caught:
        await weights.load("good", 3.0, waits=True)
    assert caught.value.code == "unsupported_operation"
    assert client.commands == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}]}),
        ("/v1/completions", {"prompt": ["ab", "c"], "echo": True}),
    ],
)
def test_streams_name_the_weights_that_answered(
    server: Served, path: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that comes during a load is answered by the new weights."""
    engine, generate = server.engine, server.client.generate
    first = server.post(path, body).json()["system_fingerprint"]

    async def generate_later(request: Request) -> AsyncGenerator[TokenEvent, None]:
        monkeypatch.setattr(engine, "info", msgspec.structs.replace(engine.info, weight_version="later"))
        async for event in generate(request):
            yield event

    monkeypatch.setattr(server.client, "generate", generate_later)
    text = server.post(path, body | {"stream": True, "stream_options": {"include_usage": True}}).text
    *frames, _ = text.removesuffix("\n\n").split("\n\n")
    found = {json.loads(frame.removeprefix("data: "))["system_fingerprint"] for frame in frames}
    assert found == {server.post(path, body).json()["system_fingerprint"]}
    assert found != {first}
