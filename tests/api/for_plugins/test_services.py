"""Routes of plugins generate, score, tokenize and keep files through `state["services"]`, as their caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Request, post
from litestar.datastructures import State

from llmfw.core import Request as EngineRequest
from llmfw.core import RouteServices, SamplingParams, ServerAPI

from ...doubles.echo_engine import EOS, EchoEngine, score
from ...doubles.serving import Served, byte_tokenizer, serving

ALICE, BOB, ROOT = (f"{name}-0123456789abcdef" for name in ("alice", "bob", "root"))


class Call(msgspec.Struct):
    name: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


@post("/call", status_code=200)
async def call(request: Request[Any, Any, Any], state: State) -> Any:
    """Call a method of the services, and return its result."""
    api: ServerAPI = state["api"]
    body, _ = await api.read(request, Call)
    services: RouteServices = state["services"]
    kwargs = dict(body.kwargs)
    if "sampling" in kwargs:
        kwargs["sampling"] = msgspec.convert(kwargs["sampling"], SamplingParams)
    if body.name == "caller":
        return msgspec.to_builtins(services.caller)
    if body.name == "stream":
        return [msgspec.to_builtins(piece) async for piece in services.stream(*body.args, **kwargs)]
    return msgspec.to_builtins(await getattr(services, body.name)(*body.args, **kwargs))


@post("/file", status_code=200)
async def file(request: Request[Any, Any, Any], state: State) -> Any:
    """Call a method of the caller's files, and return its result."""
    api: ServerAPI = state["api"]
    body, _ = await api.read(request, Call)
    services: RouteServices = state["services"]

    async def content() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    if body.name == "create":
        return msgspec.to_builtins(await services.files.create(*body.args, content()))
    if body.name == "read":
        return b"".join([piece async for piece in services.files.read(*body.args)]).decode()
    return msgspec.to_builtins(await getattr(services.files, body.name)(*body.args, **body.kwargs))


@post("/bare", status_code=200)
async def bare(state: State) -> list[str]:
    """Send the engine a request that claims to be another tenant's; return what the state has."""
    request = EngineRequest(
        id="bare", prompt=[1], sampling=SamplingParams(max_tokens=1), tenant="bob", tenant_is_key=True
    )
    async for _ in state["client"].generate(request):
        pass
    return sorted(state.dict())


@post("/command", status_code=200)
async def command(state: State) -> str:
    from llmfw.core.base.control import GetPolicy

    return type(await state["client"].control(GetPolicy())).__name__


ROUTES = [("ext", f"{__name__}:{name}") for name in ("call", "file", "bare", "command")]
KEYS = {"api_key": (("alice", ALICE), ("bob", BOB)), "admin_api_key": ROOT}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, plugin_routes=ROUTES, **KEYS) as served:
        yield served


def ids(text: str) -> list[int]:
    """Return the tokens of printable ASCII text."""
    return [ord(each) - 33 for each in text]


def ask(served: Served, path: str, name: str, *args: Any, key: str = ALICE, **kwargs: Any) -> httpx.Response:
    body = {"name": name, "args": args, "kwargs": kwargs}
    return served.post(path, body, headers={"authorization": f"Bearer {key}"})


def test_a_whole_text_has_its_tokens(served: Served) -> None:
    reply = ask(served, "/call", "generate", "Hi", logprobs=1).json()
    assert (reply["text"], reply["token_ids"], reply["finish_reason"]) == ("Hi", [*ids("Hi"), EOS], "stop")
    assert (reply["prompt_tokens"], len(reply["logprobs"])) == (2, 3)


def test_token_ids_are_a_prompt(served: Served) -> None:
    sampling = {"max_tokens": 2}
    reply = ask(served, "/call", "generate", ids("Hi!"), sampling=sampling).json()
    assert (reply["text"], reply["finish_reason"]) == ("Hi", "length")


def test_streamed_pieces_add_up(served: Served) -> None:
    pieces = ask(served, "/call", "stream", "Hello").json()
    assert "".join(piece["text"] for piece in pieces) == "Hello"
    assert [token for piece in pieces for token in piece["token_ids"]] == [*ids("Hello"), EOS]
    assert [piece["finish_reason"] for piece in pieces][-2:] == [None, "stop"]


def test_single_tokens_are_scored_by_one_request(served: Served) -> None:
    before = len(served.engine.requests)
    reply = ask(served, "/call", "score", "q", ["a", "q", "a"]).json()
    scores = [each["logprob"] for each in reply["continuations"]]
    assert scores == pytest.approx([-65 / 1000 - 1, -81 / 1000, -65 / 1000 - 1])
    assert len(served.engine.requests) == before + 1


def test_longer_continuations_are_summed(served: Served) -> None:
    first, second = ask(served, "/call", "score", "q", ["ab", [66]]).json()["continuations"]
    assert first["token_logprobs"] == pytest.approx([score(64, 0).logprob, score(65, 0).logprob])
    assert first["logprob"] == pytest.approx(sum(first["token_logprobs"]))
    assert (second["token_ids"], second["logprob"]) == ([66], pytest.approx(score(66, 0).logprob))


def test_scores_let_the_prompt_come_from_the_cache(served: Served) -> None:
    before = len(served.engine.requests)
    ask(served, "/call", "score", "long question", ["ab", "abc"])
    asked = served.engine.requests[before:]
    assert [each.prompt_logprobs_start for each in asked] == [len("long question")] * 2


def test_tokens_are_encoded_decoded_and_counted(served: Served) -> None:
    assert ask(served, "/call", "encode", "Hi").json() == ids("Hi")
    assert ask(served, "/call", "decode", ids("Hi")).text == "Hi"
    assert ask(served, "/call", "count", "Hello").json() == 5


def test_chats_are_rendered(served: Served) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert ask(served, "/call", "render", messages).text == "Hi"
    options = {"enable_thinking": True}
    assert ask(served, "/call", "render", messages, template_options=options).text == "Hi<think>"


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (("generate", "Hi", {}, {"logprobs": 21}), "logprobs"),
        (("generate", "Hi", {}, {"timeout_s": 0}), "timeout_s"),
        (("generate", [5000], {}, {}), "prompt"),
        (("generate", "", {}, {}), "prompt"),
        (("generate", "Hi", {}, {"sampling": {"stop": ["x"] * 257}}), "stop"),
        (("score", "Hi", [[]], {}), "continuations"),
        (("score", "Hi", [["a", ""]], {}), "continuations[1]"),
        (("decode", [5000], {}, {}), "tokens[0]"),
        (("render", [{"role": 5}], {}, {}), "messages[0].role"),
        (("render", ["Hi"], {}, {}), "messages"),
    ],
)
def test_wrong_arguments_are_named(served: Served, call: tuple[Any, ...], param: str) -> None:
    name, first, rest, kwargs = call
    reply = ask(served, "/call", name, first, *rest, **kwargs)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("generate", 5, {}), "prompt is 5 (int); give a str, or a sequence of token ids"),
        (("generate", [1, "a"], {}), "prompt[1] is 'a' (str); give a token id, which is an int"),
        (("generate", [1.5], {}), "prompt[0] is 1.5 (float); give a token id"),
        (("stream", None, {}), "prompt is None (NoneType); give a str"),
        (("generate", "T", {"logprobs": True}), "logprobs is True (bool); give an int or None"),
        (("generate", "T", {"timeout_s": "5"}), "timeout_s is '5' (str); give a number of seconds or None"),
        (("generate", "T", {"priority": None}), "priority is None (NoneType); give an int"),
        (("generate", "T", {"grammar": "a+"}), "grammar is 'a+' (str); give a GrammarSpec or None"),
        (("embed", "text", {}), "texts is 'text' (str); give a sequence of str"),
        (("embed", ["a", 5], {}), "texts[1] is 5 (int); give a str"),
        (("score", "T", "ab", {}), "continuations is 'ab' (str); give a sequence"),
        (("score", "T", [None], {}), "continuations[0] is None (NoneType)"),
        (("classify", [["a", 5]], {}), "inputs[0][1] is 5 (int); give a str"),
    ],
)
def test_wrong_types_are_the_plugins_fault(
    served: Served, call: tuple[Any, ...], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply = ask(served, "/call", *call[:-1], **call[-1])
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "plugin_error"), reply.text
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"TypeError: {said}" in record.getMessage()


def test_a_model_that_generates_does_not_embed(served: Served) -> None:
    assert ask(served, "/call", "embed", ["Hi"]).json()["error"]["code"] == "unsupported_operation"


@pytest.mark.parametrize(("key", "tenant", "is_admin"), [(ALICE, "alice", False), (ROOT, "(admin)", True)])
def test_the_caller_is_the_keys(served: Served, key: str, tenant: str, is_admin: bool) -> None:
    caller = ask(served, "/call", "caller", key=key).json()
    assert (caller["is_key"], caller["is_admin"]) == (True, is_admin)
    assert tenant.strip("()") in caller["tenant"]


@pytest.mark.parametrize("args", [("generate", "T"), ("stream", "T"), ("score", "T", ["a"])])
def test_generation_counts_for_the_caller(served: Served, args: tuple[Any, ...]) -> None:
    ask(served, "/call", *args, key=BOB)
    request = served.engine.requests[-1]
    assert (request.tenant, request.tenant_is_key) == ("bob", True)


def test_the_engine_client_cannot_claim_a_tenant(served: Served) -> None:
    reply = served.post("/bare", {}, headers={"authorization": f"Bearer {ALICE}"})
    assert served.engine.requests[-1].tenant == "alice"
    assert reply.json() == ["api", "bodies", "client", "config", "services"]


def test_commands_need_an_administrator(served: Served) -> None:
    refused = served.post("/command", {}, headers={"authorization": f"Bearer {ALICE}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "admin_forbidden")


def test_files_belong_to_the_caller(served: Served) -> None:
    made = ask(served, "/file", "create", "a.txt", "user_data").json()
    assert (made["tenant"], made["bytes"]) == ("alice", 7)
    assert ask(served, "/file", "read", made["id"]).text == "one two"
    assert [each["id"] for each in ask(served, "/file", "list").json()] == [made["id"]]
    assert ask(served, "/file", "list", key=BOB).json() == []
    for name in ("get", "read", "delete"):
        assert ask(served, "/file", name, made["id"], key=BOB).status_code == 404
    assert ask(served, "/file", "delete", made["id"]).status_code == 200
    assert ask(served, "/file", "get", made["id"]).status_code == 404


def test_only_known_purposes_are_stored(served: Served) -> None:
    assert ask(served, "/file", "create", "a.txt", "none").json()["error"]["param"] == "purpose"
