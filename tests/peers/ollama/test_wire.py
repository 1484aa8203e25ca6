"""Ollama's routes on the wire: lines, fields that are honored, refused or ignored, errors and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from llmfw.core.base.request import Request

from ...doubles.echo_engine import FAIL, EchoEngine
from ...doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
PLAIN = {"think": False}
TILDE = 93


def chat(server: Served, text: str, **fields: Any) -> httpx.Response:
    body = {"model": SERVED_NAME, "messages": [{"role": "user", "content": text}], **PLAIN, **fields}
    return server.post("/api/chat", body)


def generate(server: Served, prompt: str, **fields: Any) -> httpx.Response:
    return server.post("/api/generate", {"model": SERVED_NAME, "prompt": prompt, **PLAIN, **fields})


def lines(reply: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.text.splitlines()]


def ignored(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return reply.headers.get("llmfw-ignored-params", "").split(", ")


def test_streams_are_json_lines_by_default(ollama: Served) -> None:
    reply = chat(ollama, "Hi")
    assert reply.headers["content-type"] == "application/x-ndjson"
    first, *_, last = lines(reply)
    assert first["message"] == {"role": "assistant", "content": "H"}
    assert (first["model"], first["done"]) == (SERVED_NAME, False)
    assert (last["message"]["content"], last["done"], last["done_reason"]) == ("", True, "stop")
    assert (last["prompt_eval_count"], last["eval_count"]) == (2, 3)
    durations = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    assert all(isinstance(last[name], int) for name in durations)
    assert last["eval_duration"] > 0


def test_a_whole_reply_is_one_object(ollama: Served) -> None:
    reply = generate(ollama, "Hello", stream=False)
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert (body["response"], body["done"], body["done_reason"]) == ("Hello", True, "stop")
    assert "context" not in body
    assert "message" not in body


def test_thinking_is_a_separate_field(ollama: Served) -> None:
    message = chat(ollama, "why</think>so", think=True, stream=False).json()["message"]
    assert message == {"role": "assistant", "content": "so<think>", "thinking": "why"}
    body = generate(ollama, "why</think>so", think=None, stream=False).json()
    assert (body["thinking"], body["response"]) == ("why", "so<think>")


@pytest.mark.parametrize("stream", [True, False])
def test_tool_calls_have_objects_as_arguments(ollama: Served, stream: bool) -> None:
    reply = chat(ollama, CALL, tools=TOOLS, stream=stream)
    found = [call for line in lines(reply) for call in line["message"].get("tool_calls", ())]
    assert [call["function"] for call in found] == [
        {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}
    ]
    assert lines(reply)[-1]["done_reason"] == "stop"


def test_a_truncated_call_is_text(ollama: Served) -> None:
    body = chat(ollama, CALL, tools=TOOLS, stream=False, options={"num_predict": 45}).json()
    assert body["done_reason"] == "length"
    assert "tool_calls" not in body["message"]
    assert "city" in body["message"]["content"]


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.reasoning_content }}|{{ m.tool_call_id }}"
    "{% for c in m.tool_calls or [] %}|{{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}"
    "{% endfor %}]{% endfor %}"
)


def test_tool_results_are_matched_to_their_calls(
    tmp_path: Path, ollama_routes: list[tuple[str, str]]
) -> None:
    calls = [{"function": {"name": name, "arguments": {"city": "Rome"}}} for name in ("a", "b")]
    messages = [
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "content": "2", "tool_name": "b"},
        {"role": "tool", "content": "1"},
    ]
    tokenizer = byte_tokenizer(tmp_path)
    with serving(EchoEngine(), tokenizer, TEMPLATE, plugin_routes=ollama_routes) as served:
        body = {"model": SERVED_NAME, "messages": messages, "stream": False}
        text = served.post("/api/chat", body).json()["message"]["content"]
    assert text == "[assistant||hm||call_0_0 a Rome|call_0_1 b Rome][tool|2||call_0_1][tool|1||call_0_0]"


def test_logprobs_belong_to_their_tokens(ollama: Served) -> None:
    body = chat(ollama, "Hi", logprobs=True, top_logprobs=2, stream=False).json()
    assert [each["token"] for each in body["logprobs"]][:2] == ["H", "i"]
    assert len(body["logprobs"][0]["top_logprobs"]) == 2


def test_options_reach_the_engine(ollama: Served) -> None:
    options = {
        "num_predict": 3,
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": -1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "seed": 7,
        "stop": ["zz"],
    }
    assert chat(ollama, "Hello", options=options, stream=False).json()["message"]["content"] == "Hel"
    sampling = ollama.engine.requests[-1].sampling
    assert (sampling.max_tokens, sampling.top_k, sampling.seed, sampling.stop) == (3, 5, 7, ("zz",))
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.5, 0.9, 0.1)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (
        1.1,
        0.2,
        0.3,
    )


@pytest.mark.parametrize("num_predict", [None, -1, -2])
@pytest.mark.parametrize("raw", [True, False])
def test_without_a_limit_the_context_is_the_limit(ollama: Served, num_predict: int | None, raw: bool) -> None:
    generate(ollama, "Hello", raw=raw, options={"num_predict": num_predict, "seed": -1})
    sampling = ollama.engine.requests[-1].sampling
    assert (sampling.max_tokens, sampling.seed) == (512 - 5, None)


def test_repeat_last_n_zero_disables_penalties(ollama: Served) -> None:
    reply = chat(ollama, "Hi", options={"repeat_penalty": 2, "repeat_last_n": 0})
    assert ignored(reply) == ["options.repeat_penalty"]
    assert ollama.engine.requests[-1].sampling.repetition_penalty == 1


def test_an_unfinished_answer_is_continued(demo_template: Served) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    body = {"model": SERVED_NAME, "messages": messages, "stream": False}
    assert demo_template.post("/api/chat", body).json()["message"]["content"] == "user:a;assistant:b"


@pytest.fixture(scope="module")
def demo_template(tmp_path_factory: pytest.TempPathFactory, ollama_routes: list[tuple[str, str]]):
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if not loop.last %};{% endif %}{% endfor %}"
        "{% if add_generation_prompt %};assistant:{% endif %}"
    )
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("plain"))
    options = {"reasoning_parser": None, "tool_parser": None, "plugin_routes": ollama_routes}
    with serving(EchoEngine(), tokenizer, template, **options) as served:
        yield served


def test_system_becomes_the_first_message(demo_template: Served) -> None:
    body = {"model": SERVED_NAME, "prompt": "a", "system": "s", "stream": False}
    assert demo_template.post("/api/generate", body).json()["response"] == "system:s;user:a;assistant:"


@pytest.mark.parametrize("format", ["json", {"type": "object"}])
def test_formats_are_enforced(ollama: Served, format: Any) -> None:
    chat(ollama, "{}", format=format)
    assert ollama.engine.requests[-1].grammar.kind == "json_schema"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": "xml"}, "format is 'xml'; it must be"),
        ({"format": {"type": 5}, "template": "x"}, "template is 'x'; the server's template"),
        ({"think": "much"}, "think is 'much'; it must be true, false or one of"),
        ({"_debug_render_only": True}, "_debug_render_only is true"),
        ({"options": {"mirostat": 1}}, "options.mirostat is 1; "),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z is 0.5; "),
        ({"options": {"typical_p": 0.5}}, "options.typical_p is 0.5; "),
        ({"options": {"num_predict": 0}}, "options.num_predict is 0; it must be 1 or more"),
        ({"options": {"num_predict": 9999}}, "options.num_predict is 9999"),
        ({"options": {"repeat_penalty": 1.1, "repeat_last_n": 64}}, "options.repeat_last_n is 64"),
        (
            {"options": {"presence_penalty": 1, "penalize_newline": False}},
            "options.penalize_newline is false",
        ),
        ({"options": {"repeat_penalty": 0}}, "options.repeat_penalty is 0"),
        ({"options": {"top_p": 7}}, "options.top_p is 7"),
        ({"options": {"temperature": "hot"}}, 'options.temperature is "hot"'),
        ({"options": {"stop": [""]}}, "options.stop[0] is"),
        ({"top_logprobs": 99, "logprobs": True}, "top_logprobs is 99"),
    ],
)
@pytest.mark.parametrize("route", [chat, generate], ids=["chat", "generate"])
def test_fields_changing_the_answer_are_refused(ollama: Served, route, fields, words: str) -> None:
    reply = route(ollama, "Hi", **fields)
    assert reply.status_code == 400
    assert reply.json().keys() == {"error"}
    assert words in reply.json()["error"]
    assert "\n" not in reply.json()["error"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"images": ["aGk="]}, "images has 1 images"),
        ({"context": [1, 2]}, "context is 2 tokens; send the conversation as messages"),
        ({"raw": True, "system": "s"}, "system is 's'; a request with raw"),
        ({"raw": True, "suffix": "s"}, "suffix is 's'; a raw prompt"),
        ({"raw": True, "logprobs": True}, "logprobs is true; a request with raw"),
        ({"suffix": "s"}, "no tokens for filling in text before a suffix"),
    ],
)
def test_unsupported_prompt_fields_are_refused(ollama: Served, fields: dict[str, Any], words: str) -> None:
    reply = generate(ollama, "Hi", **fields)
    assert (reply.status_code, words in reply.json()["error"]) == (400, True), reply.text


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user", "content": "x", "images": ["aGk="]}, "messages[0].images has 1 images"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function is missing"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": [1]}}]},
            "messages[0].tool_calls[0].function.arguments is [1]",
        ),
        ({"role": "assistant", "tool_calls": {}}, None),
        ({"role": "assistant", "tool_calls": 5}, "messages[0].tool_calls is 5"),
    ],
)
def test_wrong_messages_name_the_path(demo_template: Served, message, words: str | None) -> None:
    reply = demo_template.post("/api/chat", {"model": SERVED_NAME, "messages": [message]})
    assert reply.status_code == (200 if words is None else 400)
    assert words is None or words in reply.json()["error"]


@pytest.mark.parametrize("think", [True, "high"])
def test_a_model_without_thinking_refuses_think(demo_template: Served, think: Any) -> None:
    reply = chat(demo_template, "Hi", think=think)
    assert (reply.status_code, "does not support thinking" in reply.json()["error"]) == (400, True)


def test_ignored_fields_are_reported_in_a_header(ollama: Served) -> None:
    reply = chat(
        ollama, "Hi", keep_alive="5m", truncate=True, shift=None, options={"num_ctx": 4096, "num_gpu": 1}
    )
    assert ignored(reply) == ["keep_alive", "options.num_ctx", "options.num_gpu", "truncate"]


def test_strict_servers_refuse_fields_without_effect(
    tmp_path: Path, ollama_routes: list[tuple[str, str]]
) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    with serving(EchoEngine(), tokenizer, plugin_routes=ollama_routes, strict_params=True) as served:
        reply = chat(served, "Hi", keep_alive=0)
    assert (reply.status_code, reply.json()["error"].partition(":")[0]) == (400, "keep_alive")


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_an_empty_request_finds_the_model_loaded(ollama: Served, path: str) -> None:
    before = len(ollama.engine.requests)
    body = ollama.post(path, {"model": SERVED_NAME, "keep_alive": "5m"}).json()
    assert (body["done"], body["done_reason"]) == (True, "load")
    reply = ollama.post(path, {"model": SERVED_NAME, "keep_alive": 0})
    assert (reply.status_code, "keep_alive is 0" in reply.json()["error"]) == (400, True)
    assert len(ollama.engine.requests) == before


def test_a_body_needs_no_content_type(ollama: Served) -> None:
    raw = json.dumps({"model": SERVED_NAME, "prompt": "Hi", "stream": False, "think": False})
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert httpx.post(f"{ollama.url}/api/generate", content=raw, headers=headers).json()["response"] == "Hi"


def test_cross_site_pages_are_refused(ollama: Served) -> None:
    raw = json.dumps({"model": SERVED_NAME, "prompt": "Hi"})
    headers = {"content-type": "text/plain", "origin": "https://other.example"}
    assert httpx.post(f"{ollama.url}/api/generate", content=raw, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{", "not valid JSON"), (b"{}", "model is missing"), (b"[]", "expected `object`")],
)
def test_wrong_bodies_are_refused(ollama: Served, content: bytes, words: str) -> None:
    reply = httpx.post(f"{ollama.url}/api/chat", content=content)
    assert reply.status_code == 400
    assert words.lower() in reply.json()["error"].lower()


class FailsAtTilde(EchoEngine):
    """Fails at the tilde of a prompt."""

    def add(self, request: Request) -> None:
        prompt = [FAIL if token == TILDE else token for token in request.prompt]
        super().add(msgspec.structs.replace(request, prompt=prompt))


@pytest.mark.parametrize(("prompt", "status"), [("Hi~", 200), ("~", 500)])
def test_a_late_failure_is_the_last_line(
    tmp_path: Path, ollama_routes: list[tuple[str, str]], prompt: str, status: int
) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    assert tokenizer.encode("~") == [TILDE]
    with serving(FailsAtTilde(), tokenizer, plugin_routes=ollama_routes) as served:
        reply = generate(served, prompt, raw=True)
        whole = generate(served, prompt, raw=True, stream=False)
    assert (reply.status_code, whole.status_code) == (status, 500)
    *pieces, last = lines(reply)
    assert "".join(piece["response"] for piece in pieces) == prompt.removesuffix("~")
    assert last.keys() == whole.json().keys() == {"error"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_ends_the_request(
    tmp_path: Path, ollama_routes: list[tuple[str, str]], stream: bool
) -> None:
    engine = EchoEngine(delay=0.05)
    with serving(engine, byte_tokenizer(tmp_path), plugin_routes=ollama_routes) as served:
        body = {"model": SERVED_NAME, "prompt": "x" * 200, "stream": stream}
        if stream:
            with httpx.stream("POST", f"{served.url}/api/generate", json=body) as reply:
                next(reply.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{served.url}/api/generate", json=body, timeout=0.5)
        wait_until(lambda: bool(engine.aborted))


def test_keys_protect_the_routes(tmp_path: Path, ollama_routes: list[tuple[str, str]]) -> None:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=ollama_routes, api_key="secret"
    ) as served:
        assert httpx.get(f"{served.url}/api/tags").status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert httpx.get(f"{served.url}/api/tags", headers=headers).status_code == 200
        assert httpx.head(served.url).status_code == 200


def test_client_probes_are_answered(ollama: Served) -> None:
    for path in ("/", "/api/tags", "/api/version"):
        assert httpx.head(ollama.url + path).status_code == 200
    assert httpx.get(f"{ollama.url}/").status_code == 200
    assert httpx.get(f"{ollama.url}/api/version").json().keys() == {"version"}


def test_older_clients_may_send_name(ollama: Served) -> None:
    assert ollama.post("/api/show", {"name": SERVED_NAME}).json()["capabilities"] == [
        "completion",
        "thinking",
        "tools",
    ]
    assert ollama.post("/api/show", {}).json()["error"].startswith("model is missing")
