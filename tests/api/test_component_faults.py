"""A component that raises ends only its request, with a 500 that names the component."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import get

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.batch_store import BatchRecord, BatchStore
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.file_store import FileRecord, FileStore
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ReasoningParser, ToolParser
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_memory.responses import MemoryResponses

from ..doubles.echo_engine import VOCAB_SIZE, EchoEngine
from ..doubles.serving import LAST_MESSAGE, MARKERS, Served, byte_tokenizer, serving

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
ID = "0123456789abcdef0123456789abcdef"


class Template(JinjaChatTemplate):
    def render(self, messages: Any, **kwargs: Any) -> str:
        if "break template" in messages[-1]["content"]:
            raise ZeroDivisionError("a defect of the template")
        if "refuse" in messages[-1]["content"]:
            raise RequestError("this template knows no such word", param="messages")
        return super().render(messages, **kwargs)


class Tools(HermesToolParser):
    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        if any(tool["function"]["name"] == "broken" for tool in tools):
            raise LookupError("no such tool")

    def feed(self, text: str) -> Any:
        if "#" in text:
            raise IndexError("too far")
        return super().feed(text)


class Thinks(Qwen3ReasoningParser):
    broken = False

    def feed(self, text: str) -> Sequence[ReasoningDelta | ContentDelta]:
        self.broken |= "%" in text
        return super().feed(text)

    def finish(self) -> Sequence[ReasoningDelta | ContentDelta]:
        if self.broken:
            raise AttributeError("nothing to finish")
        return super().finish()


class Backend(GrammarBackend):
    def __init__(self, tokenizer: Any, vocab_size: int) -> None: ...

    def compile(self, spec: GrammarSpec) -> Grammar:
        raise ArithmeticError("no room for the automaton")

    def fill_masks(self, grammars: Any, masks: Any) -> None: ...


class Files(MemoryFiles):
    async def get(self, file_id: str) -> FileRecord:
        if file_id == f"file-{ID}":
            raise OSError("the disk is gone")
        return await super().get(file_id)

    async def put(self, chunks: AsyncIterator[bytes], describe: Any) -> FileRecord:
        record = await super().put(chunks, describe)
        if record.filename == "bad.txt":
            raise OSError("the disk is gone")
        return record


class Batches(MemoryBatches):
    async def get(self, batch_id: str) -> BatchRecord:
        if batch_id == f"batch_{ID}":
            raise ConnectionError("the database is gone")
        return await super().get(batch_id)


class Responses(MemoryResponses):
    async def get(self, response_id: str) -> ResponseRecord:
        if response_id == f"resp_{ID}":
            raise ConnectionError("the database is gone")
        return await super().get(response_id)


@get("/brought")
async def brought() -> None:
    raise RuntimeError("a defect of the route")


def entry(kind: str, component: type) -> Entry:
    return Entry(kind, "bad", f"{__name__}:{component.__name__}", "ext", "llmfw-ext", "1.2")


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve with components that fail on a certain word."""
    # The process that compiles grammars imports its component by name.
    sys.path.append(str(Path(__file__).parents[2]))
    ledger = Registry().ledger

    def made(kind: str, component: type, interface: type, **how: bool) -> Any:
        return guarded(component, interface, ledger.of(entry(kind, component)), **how)

    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
    grammar = entry("grammar", Backend)
    template = made("chat_template", Template, ChatTemplate)
    with serving(
        EchoEngine(),
        tokenizer,
        chat_template=template(LAST_MESSAGE, tokenizer.special_tokens),
        tool_parser=made("tool_parser", Tools, ToolParser, per_request=True),
        reasoning_parser=made("reasoning_parser", Thinks, ReasoningParser, per_request=True),
        grammar_checker=GrammarChecker(grammar, tokenizer, VOCAB_SIZE, ledger.of(grammar)),
        stores={
            "files": made("file_store", Files, FileStore)(None),
            "batches": made("batch_store", Batches, BatchStore)(None),
            "responses": made("response_store", Responses, ResponseStore)(None, 2**20),
        },
        plugin_routes=[("ext", f"{__name__}:brought")],
        ledger=ledger,
    ) as served:
        yield served


def chat(text: str, **fields: Any) -> tuple[str, str, dict[str, Any]]:
    return (
        "POST",
        "/v1/chat/completions",
        {"json": {"messages": [{"role": "user", "content": text}], **fields}},
    )


FAULTS = {
    "chat template": chat("break template"),
    "tool parser": chat("a # b", tools=[TOOL]),
    "tool parser as it is built": chat("a", tools=[TOOL | {"function": {"name": "broken"}}]),
    "reasoning parser": chat("a % b"),
    "grammar": chat("a", response_format={"type": "json_object"}),
    "file store": ("GET", f"/v1/files/file-{ID}", {}),
    "file store in an upload": (
        "POST",
        "/v1/files",
        {"files": {"file": ("bad.txt", b"abc")}, "data": {"purpose": "user_data"}},
    ),
    "batch store": ("GET", f"/v1/batches/batch_{ID}", {}),
    "response store": ("GET", f"/v1/responses/resp_{ID}", {}),
    "route": ("GET", "/brought", {}),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_failing_component_is_named_in_the_500(
    fragile: Served, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    method, path, options = FAULTS[what]
    reply = httpx.request(method, fragile.url + path, timeout=20, **options)
    error = reply.json()["error"]
    kind = re.split(" as | in ", what)[0]
    assert (reply.status_code, error["type"], error["code"]) == (500, "server_error", "plugin_error")
    assert error["message"].startswith(f"{kind} '")
    assert error["message"].endswith("of plugin 'ext' failed on this request; the server's log says why")
    assert reply.headers["x-should-retry"] == "false"
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "of plugin 'ext' (" in record.getMessage()
    assert record.exc_info is not None
    assert fragile.chat("go on").status_code == 200


def test_the_log_names_the_package_and_its_version(fragile: Served, caplog: pytest.LogCaptureFixture) -> None:
    fragile.chat("break template")
    assert (
        f"(llmfw-ext 1.2, {__name__}:Template) failed in render_briefly(): ZeroDivisionError" in caplog.text
    )


@pytest.mark.parametrize(("text", "fields"), [("abc # d", {"tools": [TOOL]}), ("abc % d", {})])
def test_a_stream_s_failing_component_ends_it(fragile: Served, text: str, fields: Any) -> None:
    lines = [line for line in fragile.chat(text, stream=True, **fields).text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    error = json.loads(lines[-2].removeprefix("data: "))["error"]
    assert error["code"] == "plugin_error"
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-2]]
    assert "".join(delta.get("content") or "" for delta in deltas).startswith("abc")


def test_a_component_may_refuse_a_request(fragile: Served) -> None:
    reply = fragile.chat("refuse")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")


def test_an_unknown_id_stays_a_404(fragile: Served) -> None:
    assert httpx.get(f"{fragile.url}/v1/files/file-{ID[::-1]}").status_code == 404


def test_metrics_report_each_component_s_use(fragile: Served) -> None:
    fragile.chat("break template")
    fragile.chat("go on")
    reply = httpx.get(f"{fragile.url}/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    labels = '{kind="chat_template",name="bad",plugin="ext"}'
    figures = dict(line.rsplit(" ", 1) for line in reply.text.splitlines() if not line.startswith("#"))
    assert float(figures[f"llmfw_plugin_seconds_total{labels}"]) > 0
    calls, failures = (float(figures[f"llmfw_plugin_{name}_total{labels}"]) for name in ("calls", "failures"))
    assert calls > failures >= 1
    assert {"tool_parser", "reasoning_parser", "file_store"} <= set(re.findall(r'kind="(\w+)"', reply.text))
