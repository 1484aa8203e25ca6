"""Images of chats, responses, Anthropic's messages and batches reach the model in their order, or get a 400."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from ...doubles.echo_engine import EchoEngine
from ...doubles.picture_files import file_of, picture_of, png_of
from ...doubles.seeing import TEMPLATE, SeeingPrompts
from ...doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

PAGE = Path(__file__).parents[3] / "docs" / "images.md"
SMALL, WIDE = file_of(picture_of(8, 9)), file_of(picture_of(30, 5), "JPEG")


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def part(data: bytes = SMALL, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    with serving(
        EchoEngine(),
        tokenizer,
        TEMPLATE,
        image_prompts=SeeingPrompts(tokenizer),
        reasoning_parser=None,
        tool_parser=None,
        max_images=4,
        max_image_mb=1,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model reads text only."""
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))) as found:
        yield found


@pytest.fixture(scope="module")
def sdk(served: Served) -> Iterator[openai.OpenAI]:
    with served.openai() as client:
        yield client


def chat(served: Served, *content: Any, **fields: Any) -> httpx.Response:
    return served.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": list(content)}], **fields}
    )


def answer(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def refusal(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    return response.json()["error"]


def test_several_images_keep_their_places(served: Served) -> None:
    found = chat(served, text("a"), part(), text("b"), part(WIDE), text("c"))
    assert answer(found) == "a[8x9]b[30x5]c"


def test_the_detail_is_handed_on(served: Served) -> None:
    assert answer(chat(served, part(detail="low"), part())) == "[8x9](low)[8x9]"


def test_an_input_image_is_read_in_chats(served: Served) -> None:
    assert answer(chat(served, {"type": "input_image", "image_url": data_url(WIDE)})) == "[30x5]"


def test_images_in_history_are_read(served: Served) -> None:
    messages = [
        {"role": "user", "content": [part(), text("one")]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [text("three"), part(WIDE)]},
    ]
    assert answer(served.post("/v1/chat/completions", {"messages": messages})) == "[8x9]onetwothree[30x5]"


def test_openai_s_sdk_sends_images(sdk: openai.OpenAI) -> None:
    found = sdk.chat.completions.create(
        model="org/echo",
        messages=[{"role": "user", "content": [part()]}],  # type: ignore[list-item]
    )
    assert found.choices[0].message.content == "[8x9]"
    assert found.usage is not None
    assert found.usage.prompt_tokens == len("[8x9]")


@pytest.mark.parametrize(
    ("broken", "param", "word"),
    [
        (part(SMALL[:-9]), "image_url", "incomplete or damaged PNG"),
        (part(png_of(1, 1)), "image_url", "1x1 pixels"),
        (part(png_of(1, 60_000)), "image_url", "1x60000 pixels"),
        (part(b"%PDF-1.7 " * 9), "image_url", "is PDF"),
        (part(b"a" * 2**21), "image_url", "at most 1048576 are allowed"),
        ({"type": "image_url", "image_url": "data:image/png;base64,???"}, "image_url", "not valid base64"),
        ({"type": "image_url", "image_url": "https://example.com/a.png"}, "image_url", "--allow-media-host"),
        ({"type": "image_url", "image_url": "http://169.254.169.254/"}, "image_url", "--allow-media-host"),
        ({"type": "image_url", "image_url": "file:///etc/passwd"}, "image_url", "scheme 'file'"),
        ({"type": "image_url", "image_url": "hello"}, "image_url", "scheme ''"),
        ({"type": "image_url", "image_url": {"detail": "low"}}, "image_url.url", "missing"),
        ({"type": "image_url", "image_url": {"url": 5}}, "image_url", "must be a string"),
        ({"type": "image_url"}, "image_url", "missing"),
        (part(detail="huge"), "image_url.detail", "one of auto, low"),
        ({"type": "input_audio", "input_audio": {}}, "type", "'text' and 'image_url' only"),
        ({"type": "video_url", "video_url": {}}, "type", "'text' and 'image_url' only"),
        ({"type": "image"}, "type", "'text' and 'image_url' only"),
        ({"type": "input_image", "image_url": data_url(SMALL), "x": 1}, "x", "no field of an image"),
    ],
)
def test_a_400_names_the_part(served: Served, broken: dict[str, Any], param: str, word: str) -> None:
    error = refusal(chat(served, text("look"), broken))
    assert error["param"] == f"messages[0].content[1].{param}"
    assert error["param"].removesuffix(".url") in error["message"]
    assert word in error["message"]


def test_too_many_images_are_refused(served: Served) -> None:
    error = refusal(chat(served, *[part()] * 5))
    assert (error["param"], error["code"]) == ("messages[0].content[4].image_url", "invalid_image")


def test_a_model_without_images_says_so(blind: Served) -> None:
    assert "parts of type 'text' only" in refusal(chat(blind, part()))["message"]
    block = {"type": "image", "source": {"type": "url", "url": data_url(SMALL)}}
    error = refusal(messages(blind, block))
    assert error["message"].startswith('messages[0].content[0].type is "image"')
    assert "this server reads text only" in error["message"]
    error = refusal(responses(blind, {"type": "input_image", "image_url": data_url(SMALL)}))
    assert "this server reads text only" in error["message"]
    assert error["param"] == "input[0].content[0].type"


def messages(served: Served, *content: Any, path: str = "") -> httpx.Response:
    body = {"model": "org/echo", "max_tokens": 99, "messages": [{"role": "user", "content": list(content)}]}
    if path:
        del body["max_tokens"]
    return served.post(f"/v1/messages{path}", body)


def responses(served: Served, *content: Any, **fields: Any) -> httpx.Response:
    return served.post("/v1/responses", {"input": [{"role": "user", "content": list(content)}], **fields})


def source(data: bytes = SMALL) -> dict[str, Any]:
    return {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}


def test_anthropic_s_blocks_are_read(served: Served) -> None:
    blocks = [
        {"type": "image", "source": source()},
        text("and"),
        {
            "type": "image",
            "source": {"type": "url", "url": data_url(WIDE)},
            "cache_control": {"type": "ephemeral"},
        },
    ]
    found = messages(served, *blocks)
    assert found.json()["content"][0]["text"] == "[8x9]and[30x5]", found.text
    counted = messages(served, *blocks, path="/count_tokens").json()
    assert counted == {"input_tokens": found.json()["usage"]["input_tokens"]}


def test_anthropic_s_sdk_sends_images(served: Served) -> None:
    with anthropic.Anthropic(base_url=served.url, api_key="None", max_retries=0) as client:
        content: Any = [{"type": "image", "source": source(WIDE)}, text("!")]
        found = client.messages.create(
            model="org/echo", max_tokens=20, messages=[{"role": "user", "content": content}]
        )
    assert found.content[0].text == "[30x5]!"  # type: ignore[union-attr]


def test_images_in_tool_results_are_read(served: Served) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [text("see"), {"type": "image", "source": source()}],
    }
    body = {
        "model": "org/echo",
        "max_tokens": 99,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }
    found = served.post("/v1/messages", body).json()
    assert found["content"][0]["text"].endswith("see[8x9]"), found


@pytest.mark.parametrize(
    ("given", "param", "word"),
    [
        (source(SMALL[:-9]), "source.data", "damaged PNG"),
        ({"type": "base64", "data": 5}, "source.data", "must be"),
        ({"type": "base64"}, "source.data", "missing"),
        ({"type": "url", "url": "https://example.com/"}, "source.url", "--allow-media-host"),
        ({"type": "file", "file_id": "file-none"}, "source.file_id", "there is no file"),
        ({"type": "other"}, "source.type", "one of base64, url, file"),
        ("text", "source", "must be an object"),
    ],
)
def test_a_bad_block_is_named(served: Served, given: Any, param: str, word: str) -> None:
    found = messages(served, text("look"), {"type": "image", "source": given})
    assert found.status_code in (400, 404)
    assert f"messages[0].content[1].{param}" in found.json()["error"]["message"]
    assert word in found.json()["error"]["message"]


def test_responses_read_input_images(served: Served) -> None:
    given = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": data_url(WIDE), "detail": "auto"},
    ]
    found = responses(served, *given).json()
    assert found["output"][0]["content"][0]["text"] == "a[30x5](auto)", found
    follow = served.post("/v1/responses", {"input": "b", "previous_response_id": found["id"]}).json()
    assert follow["output"][0]["content"][0]["text"] == "a[30x5](auto)a[30x5](auto)b"
    items = httpx.get(f"{served.url}/v1/responses/{found['id']}/input_items").json()["data"]
    assert items[0]["content"][1] == given[1] | {"file_id": None}


def test_openai_s_sdk_sends_input_images(sdk: openai.OpenAI) -> None:
    content: Any = [{"type": "input_image", "image_url": data_url(SMALL), "detail": "high"}]
    found = sdk.responses.create(model="org/echo", input=[{"role": "user", "content": content}])
    assert found.output_text == "[8x9](high)"
    assert found.usage is not None
    counted = sdk.responses.input_tokens.count(model="org/echo", input=[{"role": "user", "content": content}])
    assert counted.input_tokens == found.usage.input_tokens


def test_truncation_keeps_the_last_images(served: Served) -> None:
    first = responses(served, {"type": "input_image", "image_url": data_url(WIDE)}, store=True).json()
    long = {"input": "x" * 495, "previous_response_id": first["id"], "truncation": "auto"}
    found = served.post("/v1/responses", long).json()
    assert found["usage"]["input_tokens"] == 495, found


def test_a_prompt_with_images_is_not_cut(served: Served) -> None:
    assert refusal(chat(served, part(), truncate_prompt_tokens=5))["param"] == "truncate_prompt_tokens"


def test_a_bad_input_image_is_named(served: Served) -> None:
    error = refusal(responses(served, {"type": "input_image", "image_url": data_url(SMALL[:-9])}))
    assert error["param"] == "input[0].content[0].image_url"
    error = refusal(responses(served, {"type": "input_image"}))
    assert error["param"] == "input[0].content[0].image_url"
    error = refusal(responses(served, {"type": "input_file", "file_data": "x"}))
    assert error["param"] == "input[0].content[0].type"


def upload(sdk: openai.OpenAI, data: bytes, purpose: str = "vision") -> str:
    return sdk.files.create(file=("a.png", data), purpose=purpose).id  # type: ignore[arg-type]


def test_an_uploaded_file_is_read_by_id(served: Served, sdk: openai.OpenAI) -> None:
    file_id = upload(sdk, SMALL)
    found = responses(served, {"type": "input_image", "file_id": file_id}).json()
    assert found["output"][0]["content"][0]["text"] == "[8x9](auto)", found
    block = {"type": "image", "source": {"type": "file", "file_id": file_id}}
    assert messages(served, block).json()["content"][0]["text"] == "[8x9]"
    assert answer(chat(served, {"type": "image_url", "file_id": file_id})) == "[8x9]"


def test_files_of_other_purposes_are_refused(served: Served, sdk: openai.OpenAI) -> None:
    error = refusal(responses(served, {"type": "input_image", "file_id": upload(sdk, SMALL, "user_data")}))
    assert error["param"] == "input[0].content[0].file_id"
    assert "images need 'vision'" in error["message"]


def test_a_tenant_reads_its_own_files_alone(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    keys = (("a", "key-a"), ("b", "key-b"))
    with serving(
        EchoEngine(), tokenizer, TEMPLATE, image_prompts=SeeingPrompts(tokenizer), api_key=keys
    ) as served:
        statuses = {}
        as_a = {"authorization": "Bearer key-a"}
        form = {"purpose": (None, "vision"), "file": ("a.png", SMALL)}
        file_id = httpx.post(f"{served.url}/v1/files", files=form, headers=as_a).json()["id"]
        for name in ("a", "b"):
            body = {"messages": [{"role": "user", "content": [{"type": "image_url", "file_id": file_id}]}]}
            headers = {"authorization": f"Bearer key-{name}"}
            statuses[name] = served.post("/v1/chat/completions", body, headers=headers).status_code
        assert statuses == {"a": 200, "b": 404}


def test_batches_read_images(sdk: openai.OpenAI) -> None:
    lines = [
        {
            "custom_id": str(i),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "org/echo", "messages": [{"role": "user", "content": [part(data)]}]},
        }
        for i, data in enumerate((SMALL, WIDE, b"nothing"))
    ]
    file_id = upload(sdk, b"\n".join(json.dumps(line).encode() for line in lines), "batch")
    batch = sdk.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    while batch.status not in ("completed", "failed"):
        batch = sdk.batches.retrieve(batch.id)
    assert batch.output_file_id, batch
    rows = [json.loads(line) for line in sdk.files.content(batch.output_file_id).text.splitlines()]
    said = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}
    assert said == {"0": "[8x9]", "1": "[30x5]"}
    assert batch.error_file_id
    [failed] = map(json.loads, sdk.files.content(batch.error_file_id).text.splitlines())
    assert failed["response"]["body"]["error"]["param"] == "messages[0].content[0].image_url"


def test_metrics_count_images(served: Served) -> None:
    chat(served, part())
    chat(served, part(b"nothing at all"))
    found = httpx.get(f"{served.url}/metrics").text
    values = dict(line.rsplit(" ", 1) for line in found.splitlines() if line.startswith("llmfw_image"))
    families = [line.split()[2] for line in found.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert float(values["llmfw_images_accepted_total"]) >= 1
    assert float(values['llmfw_images_refused_total{reason="format"}']) >= 1
    assert float(values["llmfw_image_decode_seconds_count"]) >= 1


def test_tokenize_counts_an_image(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": [part(), text("x")]}]}
    assert served.post("/tokenize", body).json()["count"] == len("[8x9]x")


def test_examples_of_the_page_run(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both SDKs, as docs/images.md shows them; the model answers with what it was asked."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "cat.png").write_bytes(SMALL)
    monkeypatch.chdir(tmp_path)
    for example in examples:
        names: dict[str, Any] = {}
        exec(example.replace("http://localhost:30000", served.url).replace("my-model", SERVED_NAME), names)  # noqa: S102
        names["client"].close()
    assert capsys.readouterr().out == "What is this?[8x9]\n[8x9]What is this?\n"
