"""An adapter is a model for clients, on every route, and is loaded and unloaded while the server runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from llmfw.api.adapters.isolated_source import build_source
from llmfw.api.llm import LLM
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ModelNotFoundError, RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving
from ..doubles.tiny_adapters import save_random_adapter

PROMPT = "The capital of France is"
MESSAGES: Any = [{"role": "user", "content": "Name a color."}]
OLLAMA = [("api_ollama", f"llmfw.plugins.api_ollama.{name}") for name in ("answers:Answers", "models:Models")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two adapters of the demo model, red and blue."""
    base = Path(resolve_model("demo", load_plugins().registry).path)
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("red", "blue")):
        save_random_adapter(
            folder / name, base, rank=4 + 4 * seed, seed=seed, targets=("q_proj", "o_proj"), size=0.6
        )
    return folder


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    adapters = (f"red={folder / 'red'}",)
    config = EngineConfig(
        model=path, dtype="float32", max_total_tokens=8192, adapters=adapters, max_adapters=3
    )
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(config, registry)
    with serving(engine, tokenizer, tokenizer.chat_template, name="demo", plugin_routes=OLLAMA) as served:
        yield served


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str | None, str]:
    """Return what each adapter, and the model alone, continues PROMPT with."""
    paths = {name: folder / name for name in ("red", "blue")}
    with LLM("demo", dtype="float32", max_total_tokens=2048, adapters=paths) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=12)
        return {name: llm.generate(PROMPT, greedy, adapter=name)[0].text for name in (None, "red", "blue")}


def completion(served: Served, model: str | None) -> dict[str, Any]:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 12}
    return served.post("/v1/completions", body if model is None else body | {"model": model}).json()


def load(served: Served, name: str, path: Path) -> httpx.Response:
    return served.post("/admin/adapters", {"name": name, "path": str(path)})


def test_adapters_are_models_with_their_own_texts(tuned: Served, expected: dict[str | None, str]) -> None:
    replies = {name: completion(tuned, name) for name in (None, "demo", "red", "demo:red")}
    texts = {name: reply["choices"][0]["text"] for name, reply in replies.items()}
    assert texts == {
        None: expected[None],
        "demo": expected[None],
        "red": expected["red"],
        "demo:red": expected["red"],
    }
    assert expected["red"] != expected[None] != expected["blue"] != expected["red"]
    assert [reply["model"] for reply in replies.values()] == ["demo", "demo", "red", "red"]
    prints = [reply["system_fingerprint"] for reply in replies.values()]
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_generate_uses_the_named_adapter(tuned: Served, expected: dict[str | None, str]) -> None:
    body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 12}}
    for model, name in ((None, None), ("demo", None), ("red", "red"), ("demo:red", "red")):
        reply = tuned.post("/generate", body if model is None else body | {"model": model})
        assert reply.json()["text"] == expected[name]


def test_models_are_listed_with_their_parent(tuned: Served) -> None:
    listed = httpx.get(tuned.url + "/v1/models").json()["data"]
    assert [(each["id"], each.get("parent")) for each in listed] == [("demo", None), ("red", "demo")]
    for name, id in (("red", "red"), ("demo:red", "red"), ("demo", "demo")):
        assert httpx.get(f"{tuned.url}/v1/models/{name}").json()["id"] == id
    theirs = httpx.get(tuned.url + "/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert [each["id"] for each in theirs["data"]] == ["demo", "red"]
    page = httpx.get(
        tuned.url + "/v1/models", params={"after_id": "demo"}, headers={"anthropic-version": "2023-06-01"}
    ).json()
    assert (page["first_id"], page["has_more"]) == ("red", False)
    tags = httpx.get(tuned.url + "/api/tags").json()["models"]
    assert [each["name"] for each in tags] == ["demo:latest", "red:latest"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8}),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "stream": True}),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "stream": True}),
        ("/v1/responses", {"input": "Name a color.", "max_output_tokens": 16}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8, "stream": True}),
        ("/tokenize", {"prompt": PROMPT}),
        ("/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 8}}),
        ("/api/generate", {"prompt": PROMPT, "stream": False, "options": {"num_predict": 8}, "raw": True}),
    ],
)
def test_each_route_takes_an_adapter(tuned: Served, path: str, body: dict[str, Any]) -> None:
    body = {"model": "red", "temperature": 0} | body if path[1:3] == "v1" else {"model": "red"} | body
    reply = tuned.post(path, body)
    assert reply.status_code == 200, reply.text
    if path != "/tokenize":
        assert '"model":"red"' in reply.text.replace(": ", ":")
    missing = tuned.post(path, body | {"model": "green"})
    assert missing.status_code == 404
    assert "'demo', 'red'" in missing.text


def test_batches_run_lines_of_adapters(tuned: Served, expected: dict[str | None, str]) -> None:
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": name, "prompt": PROMPT, "temperature": 0, "max_tokens": 12},
        }
        for name in ("demo", "red", "demo:red")
    ]
    with tuned.openai() as sdk:
        text = "\n".join(map(json.dumps, lines)).encode()
        file = sdk.files.create(file=("lines.jsonl", text), purpose="batch")
        batch = sdk.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        while batch.status not in ("completed", "failed"):
            time.sleep(0.05)
            batch = sdk.batches.retrieve(batch.id)
        assert batch.output_file_id is not None
        results = [json.loads(line) for line in sdk.files.content(batch.output_file_id).text.splitlines()]
    texts = {each["custom_id"]: each["response"]["body"]["choices"][0]["text"] for each in results}
    assert texts == {"demo": expected[None], "red": expected["red"], "demo:red": expected["red"]}


def test_adapters_are_loaded_and_unloaded(
    tuned: Served, folder: Path, expected: dict[str | None, str]
) -> None:
    loaded = load(tuned, "org/blue", folder / "blue")
    assert loaded.status_code == 200, loaded.text
    assert (loaded.json()["state"], loaded.json()["rank"]) == ("ready", 8)
    assert completion(tuned, "org/blue")["choices"][0]["text"] == expected["blue"]
    assert load(tuned, "org/blue", folder / "red").status_code == 200
    assert completion(tuned, "org/blue")["choices"][0]["text"] == expected["red"]
    listed = httpx.get(tuned.url + "/admin/adapters").json()
    assert {each["name"] for each in listed["adapters"] if each["state"] == "ready"} == {"red", "org/blue"}
    assert (listed["max_adapters"], listed["max_rank"]) == (3, 16)
    assert httpx.delete(tuned.url + "/admin/adapters/org/blue").status_code == 200
    assert completion(tuned, "org/blue")["error"]["code"] == "model_not_found"
    assert httpx.delete(tuned.url + "/admin/adapters/org/blue").status_code == 404


def test_vllm_s_routes_load_and_unload(tuned: Served, folder: Path, expected: dict[str | None, str]) -> None:
    added = tuned.post("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(folder / "blue")})
    assert (added.status_code, added.text) == (200, "Success: LoRA adapter 'b' added successfully.")
    assert completion(tuned, "b")["choices"][0]["text"] == expected["blue"]
    removed = tuned.post("/v1/unload_lora_adapter", {"lora_name": "b"})
    assert (removed.status_code, removed.text) == (200, "Success: LoRA adapter 'b' removed successfully.")
    with tuned.openai() as sdk, pytest.raises(openai.NotFoundError):
        sdk.completions.create(model="b", prompt=PROMPT)


@pytest.mark.parametrize(
    ("name", "path", "param", "message"),
    [
        ("x", "/nowhere", "path", "has no adapter_config.json"),
        ("demo", "red", "name", "which is the model's"),
        ("", "red", "name", "1 to 256 printable characters"),
        ("x/", "red", "name", "without spaces and slashes around them"),
    ],
)
def test_wrong_adapters_are_refused_by_name(
    tuned: Served, folder: Path, name: str, path: str, param: str, message: str
) -> None:
    refused = load(tuned, name, folder / path)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


def test_pins_and_the_cache_name_adapters(tuned: Served) -> None:
    text = "A prefix that only the red model has seen so far in this server."
    pin = tuned.post("/admin/cache/pins", {"prompt": text, "ttl": "60s", "model": "red", "compute": True})
    assert pin.status_code == 200, pin.text
    assert pin.json()["num_cached"] == pin.json()["num_tokens"] > 0
    found = httpx.get(tuned.url + "/admin/cache").json()["prefixes"]
    [pinned] = [each for each in found if each["first_text"].endswith(text)]
    assert (pinned["adapter"], pinned["cache_salt"], pinned["pinned"]) == ("red", "", True)
    assert httpx.delete(f"{tuned.url}/admin/cache/pins/{pin.json()['id']}").status_code == 200


@pytest.fixture(scope="module")
def searching(folder: Path) -> Iterator[Served]:
    """Serve with places for two adapters, which are found in a folder."""
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=4096, max_adapters=2)
    options = {"adapter_source.path": str(folder)}
    server = ServerConfig(served_model_name="demo", adapter_source="folder", options=options)
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(config, registry)
    source = build_source(config, server, registry)
    with serving(
        engine,
        tokenizer,
        tokenizer.chat_template,
        name="demo",
        adapter_source_object=source,
        ledger=registry.ledger,
    ) as served:
        yield served


def test_adapters_are_found_when_requests_name_them(
    searching: Served, folder: Path, expected: dict[str | None, str]
) -> None:
    for model in ("red", "demo:blue", "red", "demo"):
        name = model.removeprefix("demo:") if model != "demo" else None
        assert completion(searching, model)["choices"][0]["text"] == expected[name]
    found = httpx.get(searching.url + "/admin/adapters").json()["adapters"]
    assert {each["name"]: each["state"] for each in found} == {"red": "ready", "blue": "ready"}
    for path in ("/v1/chat/completions", "/v1/messages"):
        chat = searching.post(path, {"model": "red", "messages": MESSAGES, "max_tokens": 4})
        assert (chat.status_code, chat.json()["model"]) == (200, "red")


def test_generate_finds_adapters_by_name(searching: Served, expected: dict[str | None, str]) -> None:
    httpx.delete(searching.url + "/admin/adapters/blue")
    body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 12}, "model": "blue"}
    assert searching.post("/generate", body).json()["text"] == expected["blue"]


def test_names_lead_to_no_other_files(searching: Served, folder: Path) -> None:
    for name in (
        "../adapters/red",
        f"{folder}/red",
        "red/../blue",
        "./red",
        "RED",
        "..",
        "red/adapter_config.json",
    ):
        assert completion(searching, name)["error"]["code"] == "model_not_found", name
    metrics = httpx.get(searching.url + "/metrics").text
    assert 'llmfw_plugin_calls_total{kind="adapter_source",name="folder",plugin="hub"}' in metrics


def test_found_adapters_that_cannot_be_served_are_refused(searching: Served, folder: Path) -> None:
    (folder / "wrong").mkdir()
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / "wrong" / file).write_text("{}")
    error = completion(searching, "wrong")["error"]
    assert (error["code"], error["param"]) == ("adapter_not_loaded", "model")
    assert str(folder) not in error["message"]


def test_python_loads_and_unloads_adapters(folder: Path, expected: dict[str | None, str]) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=12)
    with LLM("demo", dtype="float32", max_total_tokens=2048, max_adapters=1) as llm:
        llm.load_adapter("a", folder / "red")
        assert llm.generate(PROMPT, greedy, adapter="a")[0].text == expected["red"]
        llm.unload_adapter("a")
        with pytest.raises(ModelNotFoundError, match="no model 'a'"):
            llm.generate(PROMPT, greedy, adapter="a")
        with pytest.raises(RequestError, match="has no adapter_config"):
            llm.load_adapter("a", folder / "none")
        assert llm.generate(PROMPT, greedy)[0].text == expected[None]
