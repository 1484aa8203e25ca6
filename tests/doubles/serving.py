"""The real application on a real uvicorn and a port of its own, in a thread, around an engine in the same process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import tokenizers
import uvicorn

from llmfw.api.app.app import create_app
from llmfw.api.app.extensions import Extensions
from llmfw.api.app.listen import bind, url_of
from llmfw.api.server.connections import ConnectionTable
from llmfw.api.server.limits import connection_limits
from llmfw.api.server.protocol import protocol_factory
from llmfw.api.services.model_components import ModelComponents
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.stores import Stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.request import GrammarSpec
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.calls import ComponentLedger
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_memory.responses import MemoryResponses

from .echo_engine import EOS, VOCAB_SIZE
from .prompt_server import PromptServer

LAST_MESSAGE = (
    "{% if 'wizard' %}{{ messages[-1].content }}{% endif %}{% if enable_thinking %}<think>{% endif %}"
)
"""A chat template that makes the echo engine answer with the last message's text."""

COMPONENT_OPTIONS = (
    "chat_template",
    "reasoning_parser",
    "tool_parser",
    "json_tool_parser",
    "grammar_checker",
    "sampling_defaults",
    "request_fields",
    "image_prompts",
)
"""Options of `serving` that replace a component of the application."""
SERVED_NAME = "org/echo"


@dataclass
class Served:
    """A running server, and what is behind it."""

    url: str
    engine: Any
    client: InprocEngineClient
    tokenizer: Tokenizer
    clients: Mapping[str, InprocEngineClient] = field(default_factory=dict)

    def openai(self, **options: Any) -> openai.OpenAI:
        """Return the OpenAI SDK's client for it."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="None", max_retries=0, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """Send a body as it is."""
        return httpx.post(self.url + path, json=body, timeout=20, **options)

    def chat(self, text: str, **fields: Any) -> httpx.Response:
        """Send a chat of one message."""
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})


class AnyGrammar:
    """A grammar checker that finds nothing wrong, as the echo engine holds its outputs to nothing."""

    async def check(self, spec: GrammarSpec, param: str, tenant: str = "") -> GrammarSpec:
        return spec

    async def close(self) -> None:
        return


MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def byte_tokenizer(folder: Path, markers: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer with one token for each byte, made-up words, and markers, as many as the engine has."""
    size = VOCAB_SIZE - len(markers)
    (folder / "config.json").write_text(json.dumps({"vocab_size": size, "eos_token_id": EOS}))
    tokenizer = load_tokenizer(str(folder), "dummy")
    tokenizer._backend.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in markers])
    return tokenizer


def memory_stores() -> dict[str, Any]:
    """Return stores that are empty, by their names in `Stores`."""
    return {
        "files": MemoryFiles(None),
        "batches": MemoryBatches(None),
        "responses": MemoryResponses(None, 2**20),
    }


@contextmanager
def serving(
    engine: Any,
    tokenizer: Tokenizer,
    template: str = LAST_MESSAGE,
    *,
    name: str = SERVED_NAME,
    others: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serve an engine until the block ends.

    Args:
        name: of the model, for clients.
        others: name of each further model → its engine; their components are those of the first.
        options: of the server's config; COMPONENT_OPTIONS, plugin_routes, middleware_objects, authenticator_objects, adapter_source_object, ledger and stores (by their names in
            `Stores`) go to the application.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    engines = {name: engine} | dict(others or {})
    clients = {model: InprocEngineClient(each) for model, each in engines.items()}
    for each in clients.values():
        asyncio.run_coroutine_threadsafe(each.start(), loop).result()
    client = clients[name]
    components: dict[str, Any] = {
        "chat_template": JinjaChatTemplate(template, tokenizer.special_tokens),
        "reasoning_parser": Qwen3ReasoningParser,
        "tool_parser": HermesToolParser,
        "grammar_checker": AnyGrammar(),
    }
    components |= {name: options.pop(name) for name in COMPONENT_OPTIONS if name in options}
    if isinstance(options.get("api_key"), str):
        options["api_key"] = (("", options["api_key"]),)
    stores = options.pop("stores", {})
    extensions = Extensions(
        options.pop("plugin_routes", ()),
        options.pop("middleware_objects", ()),
        options.pop("authenticator_objects", None),
        adapter_source=options.pop("adapter_source_object", None),
        ledger=options.pop("ledger", None) or ComponentLedger(),
    )
    config = ServerConfig(served_model_name=name, **options)
    of_model = ModelComponents(tokenizer=tokenizer, **components)
    app = create_app(
        [
            StartedModel(each, of_model, msgspec.structs.replace(config, served_model_name=model))
            for model, each in clients.items()
        ],
        Stores(**(memory_stores() | stores)),
        config,
        extensions,
    )
    limits = connection_limits(config)
    table = ConnectionTable(limits.connections, limits.connections_per_address)
    protocol: Any = protocol_factory(limits, table)
    server = PromptServer(uvicorn.Config(app, http=protocol, ws="none", log_config=None, access_log=False))
    watching = asyncio.run_coroutine_threadsafe(table.watch(), loop)
    sock = bind("127.0.0.1", 0)
    running = asyncio.run_coroutine_threadsafe(server.serve([sock]), loop)
    url = url_of(sock)
    while not server.started and not running.done():
        threading.Event().wait(0.01)
    try:
        yield Served(url, engine, client, tokenizer, clients)
    finally:
        server.should_exit = True
        running.result(10)
        watching.cancel()
        for each in clients.values():
            asyncio.run_coroutine_threadsafe(each.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when something has come true; fail if it does not within a minute."""
    deadline = time.monotonic() + 60  # a busy machine may be slow
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
