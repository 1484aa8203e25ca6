"""Bodies that nobody should send are answered with 4xx envelopes, and leave nothing behind in the server's memory."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ..doubles import serve_echo
from ..doubles.serving import SERVED_NAME, byte_tokenizer
from ..length import of_length
from .http.test_errors import error_of

NUM_BODIES = of_length(300, 2_500)
NUM_LARGE = of_length(2, 4)  # 10 MB each
MEMORY_MB = 64  # that the server may keep: allocators do not give all back

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXTS = [{"type": "text", "text": "Hi"}]
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": TEXTS, "name": "u"},
    {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "user", "content": "Hi"},
]
CONSTRAINTS: dict[str, Any] = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
    },
    "json_schema": SCHEMA,
    "regex": "a+",
    "ebnf": 'root ::= "a"',
    "structural_tag": {"structures": [{"begin": "<", "schema": SCHEMA, "end": ">"}], "triggers": ["<"]},
    "guided_json": SCHEMA,
    "guided_choice": ["a", "b"],
    "structured_outputs": {"choice": ["a", "b"]},
}
SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": 1},
    "stop": ["x"],
    "stop_token_ids": [7],
    "ignore_eos": False,
    "skip_special_tokens": True,
}
GENERATION: dict[str, Any] = {
    **SAMPLING,
    "model": "tiny",
    "max_tokens": 3,
    "min_tokens": 1,
    "seed": 7,
    "n": 2,
    "stream": False,
    "stream_options": None,
    "priority": 1,
    "timeout": 60,
    "cache_salt": "s",
    "user": "u",
    "safety_identifier": "u",
    "metadata": {"k": "v"},
}
CHAT: dict[str, Any] = {
    **GENERATION,
    "messages": MESSAGES,
    "max_completion_tokens": 3,
    "logprobs": True,
    "top_logprobs": 2,
    "reasoning_effort": "low",
    "separate_reasoning": True,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "chat_template_kwargs": {"a": 1},
}
CHAT_TOOLS: dict[str, Any] = {
    "messages": MESSAGES,
    "max_tokens": 3,
    "tools": [TOOL],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
    },
    "parallel_tool_calls": False,
}
COMPLETION: dict[str, Any] = {
    **GENERATION,
    "prompt": ["Hi", "Ho"],
    "echo": True,
    "best_of": 2,
    "logprobs": 1,
}
RESPONSE: dict[str, Any] = {
    "model": "tiny",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
        {"role": "user", "content": "Hi", "status": "completed"},
    ],
    "instructions": "Be kind.",
    "previous_response_id": None,
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "chat_template_kwargs": {"a": 1},
}
NEW_RESPONSE: dict[str, Any] = {
    **{key: SAMPLING[key] for key in ("temperature", "top_p", "logit_bias", "stop", "presence_penalty")},
    **RESPONSE,
    "background": False,
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 3,
    "metadata": {"k": "v"},
    "store": True,
    "stream": False,
    "timeout": 60,
    "cache_salt": "s",
    "user": "u",
}
MESSAGE: dict[str, Any] = {
    "model": "tiny",
    "system": TEXTS,
    "messages": [
        {"role": "user", "content": TEXTS},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": TEXTS}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "disabled"},
    "output_config": {"effort": "low"},
}
NEW_MESSAGE: dict[str, Any] = {
    **MESSAGE,
    "max_tokens": 3,
    "stop_sequences": ["x"],
    "stream": False,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.9,
}
NATIVE: dict[str, Any] = {
    "text": ["Hi", "Ho"],
    "sampling_params": {**SAMPLING, "max_new_tokens": 3, "min_new_tokens": 1, "sampling_seed": 7},
    "stream": False,
    "return_logprob": True,
    "top_logprobs_num": 2,
    "logprob_start_len": 0,
    "return_text_in_logprobs": True,
}
TOKENIZE: dict[str, Any] = {
    "messages": MESSAGES,
    "tools": [TOOL],
    "chat_template_kwargs": {"a": 1},
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": True,
    "return_token_strs": True,
}
EMBEDDING: dict[str, Any] = {"model": "tiny", "input": ["a"], "dimensions": 3, "encoding_format": "float"}
OUTPUT_EXPIRY = {"anchor": "created_at", "seconds": 3600}
BATCH: dict[str, Any] = {
    "input_file_id": "file-0",
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
    "metadata": {"a": "b"},
    "output_expires_after": OUTPUT_EXPIRY,
}
UPLOAD: dict[str, Any] = {
    "filename": "a.jsonl",
    "purpose": "batch",
    "bytes": 5,
    "mime_type": "text/jsonl",
    "expires_after": OUTPUT_EXPIRY,
}
COMPLETE = "/v1/uploads/{upload_id}/complete"
NEED_ANOTHER = ("/v1/batches", COMPLETE)  # of what is there: 404

CHANGES_ALL = {"/admin/drain", "/admin/sleep"}  # after them, all other routes answer 503
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/batches", BATCH),
    ("/v1/uploads", UPLOAD),
    (COMPLETE, {"part_ids": ["part_0", "part_1"], "md5": "0" * 32}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT_TOOLS),
    *(
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3, name: value})
        for name, value in CONSTRAINTS.items()
    ),
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {"prompt": [[5, 6], [7]], "suffix": "s"}),
    ("/v1/responses", NEW_RESPONSE),
    ("/v1/responses/input_tokens", RESPONSE),
    ("/v1/messages", NEW_MESSAGE),
    ("/v1/messages/count_tokens", MESSAGE),
    ("/generate", NATIVE),
    ("/generate", {"input_ids": [5, 6], "sampling_params": {"regex": "a+"}}),
    ("/v1/tokenize", TOKENIZE),
    ("/v1/tokenize", {"prompt": ["Hi", "Ho"]}),
    ("/v1/detokenize", {"tokens": [[5, 6], [7]], "skip_special_tokens": True}),
    ("/tokenize", {"prompt": "Hi", "return_token_strs": True}),
    ("/detokenize", {"tokens": [5, 6]}),
    ("/v1/embeddings", EMBEDDING),
    ("/admin/cache/pins", {"prompt": "Hi", "ttl_s": 60.0, "cache_salt": "s"}),
    ("/admin/cache/pins", {"input_ids": [5, 6], "ttl": "1h", "compute": True}),
    ("/admin/reload", {"log_level": "info"}),
    ("/admin/adapters", {"name": "a", "path": "/x"}),
    ("/admin/weights", {"path": "/x", "wait": True, "timeout_s": 1.5}),
    ("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": "/x", "load_inplace": True}),
    ("/v1/unload_lora_adapter", {"lora_name": "b"}),
]
WRONG: list[Any] = [
    None,
    True,
    "",
    "\x00",
    "text" * 500,
    -1,
    0,
    2**31,
    -(2**63) - 1,
    10**400,
    1e308,
    -0.0,
    math.nan,
    math.inf,
    [],
    {},
    [[]],
    {"": None},
    ["a", 1, None],
    {"role": "user"},
    "\ud800",
    "\U0001f600" * 100,
    {"$ref": "#"},
]


class Server:
    """`llmfw serve` around the echo engine, as a process of its own, so that its memory can be seen."""

    def __init__(self, folder: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, serve_echo.__file__, folder], stderr=subprocess.PIPE, stdout=None, text=True
        )
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                self.url = found[1]
                break
        self._reader = threading.Thread(target=self.popen.stderr.readlines)
        self._reader.start()

    def close(self) -> None:
        self.popen.terminate()
        self.popen.wait(20)
        self._reader.join()
        assert self.popen.stderr is not None
        self.popen.stderr.close()

    def megabytes(self) -> float:
        with open(f"/proc/{self.popen.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@pytest.fixture
def process(tmp_path) -> Iterator[Server]:
    byte_tokenizer(tmp_path)
    server = Server(str(tmp_path))
    yield server
    server.close()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a body."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a body with another value at a path."""
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def encoded(body: Any) -> bytes:
    """Return JSON as a careless client writes it: NaN, huge integers and lone surrogates are let through."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def flipped(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]


def nested(raw: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((50, 1000, 20_000))
    return raw[:-1] + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"


def doubled(raw: bytes, rng: random.Random) -> bytes:
    return raw[:-1] + b"," + raw[1:]


BYTES: list[Callable[[bytes, random.Random], bytes]] = [cut, flipped, nested, doubled]


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """Return a path, and a body for it that is wrong in one to three ways (or, now and then, is not)."""
    path, body = rng.choice(BODIES)
    for _ in range(rng.randint(1, 3)):
        body = changed(body, rng.choice(list(places(body))), rng.choice(WRONG))
    raw = encoded(body)
    return path, rng.choice(BYTES)(raw, rng) if rng.random() < 0.3 else raw


def answered(reply: httpx.Response) -> bool:
    """Return whether a reply was an error, after checking its form."""
    if reply.status_code == 200:
        return False
    assert 400 <= reply.status_code < 500, (reply.status_code, reply.text, reply.request.content[:500])
    if reply.url.path.startswith("/v1/messages"):
        assert reply.json()["type"] == "error"
        assert reply.json()["error"]["message"]
    else:
        error_of(reply, reply.status_code)
    return True


def test_the_test_covers_every_json_route(server):
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert {path for path, _ in BODIES} | CHANGES_ALL == {
        path
        for path, entry in paths.items()
        if "application/json" in entry.get("post", {}).get("requestBody", {}).get("content", ())
    }


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: value if isinstance(value, str) else "")
def test_unchanged_bodies_are_accepted(server, path, body):
    """Else every change of them would be refused for the same reason."""
    reply = server.post(path, {**body, "model": SERVED_NAME} if "model" in body else body)
    if path in ("/v1/embeddings", "/admin/weights") or "suffix" in body:
        assert answered(reply)
        assert reply.json()["error"]["code"] in ("unsupported_operation", "unsupported_parameter")
    else:
        assert reply.status_code == (404 if path in NEED_ANOTHER else 200), reply.text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory's size from /proc")
def test_hostile_bodies_are_refused_without_memory_growth(process):
    rng = random.Random(0)
    with httpx.Client(base_url=process.url, timeout=60, headers={"content-type": "application/json"}) as http:
        for _ in range(NUM_BODIES // 10):
            path, raw = mutated(rng)
            answered(http.post(path, content=raw))
        _send_large(http, rng, num=2)
        before = process.megabytes()
        refused = [answered(http.post(path, content=raw)) for path, raw in map(mutated, [rng] * NUM_BODIES)]
        _send_large(http, rng, num=NUM_LARGE)
        assert http.get("/health").json() == {"status": "ok"}
    assert sum(refused) > NUM_BODIES / 2
    assert process.megabytes() < before + MEMORY_MB


def _send_large(http: httpx.Client, rng: random.Random, num: int) -> None:
    """Send strings of 10 MB at any place of a body; they do not fit the context."""
    for _ in range(num):
        path, body = rng.choice(BODIES)
        place = rng.choice([p for p in places(body) if p and isinstance(p[-1], str)])
        answered(http.post(path, content=encoded(changed(body, place, "ab" * 5_000_000))))
