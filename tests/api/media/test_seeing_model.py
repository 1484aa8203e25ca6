"""A server answers chats with images as transformers' own processor and `generate` do: all halves together."""

from __future__ import annotations

import base64
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import PIL.Image
import pytest
import torch
from transformers import AutoModelForMultimodalLM

from llmfw.api.media.prepared import PreparedImages
from llmfw.core.base.image import Image
from llmfw.core.media.prompter import ImagePrompter
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.media_transformers.processor import TransformersProcessor

from ...core.engine.generation.running import build_engine
from ...core.engine.generation.tiny_vision import picture, save_vision_model
from ...doubles.picture_files import file_of
from ...doubles.serving import Served, serving

NUM_TOKENS = 10
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}"
    + IMAGE
    + "{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}{% endif %}{{ '\\n' }}{% endfor %}"
)
ENTRY = Entry(
    kind="media_processor",
    name="images",
    path="llmfw.plugins.media_transformers.processor:TransformersProcessor",
    plugin="media_transformers",
    distribution="llmfw-engine",
    version="0",
)


@dataclass
class Pair:
    """A server, and transformers' own model and processor of the same folder."""

    served: Served
    model: Any
    processor: Any

    def expected(self, text: str, images: list[Image]) -> list[int]:
        pictures = [PIL.Image.frombytes("RGB", (each.width, each.height), each.pixels) for each in images]
        given = self.processor(text=[text], images=pictures, return_tensors="pt", add_special_tokens=False)
        self.model.model.rope_deltas = None
        whole = self.model.generate(
            **given, max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=1, pad_token_id=2
        )
        found: list[int] = whole[0, given["input_ids"].shape[1] :].tolist()
        return found

    def answer(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        body = {
            "messages": messages,
            "max_tokens": NUM_TOKENS,
            "temperature": 0,
            "return_token_ids": True,
            **fields,
        }
        # The first image waits until a process has imported transformers.
        reply = httpx.post(f"{self.served.url}/v1/chat/completions", json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = save_vision_model(tmp_path_factory.mktemp("model"), "qwen2.5-vl")
    model = AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32).eval()
    processor = TransformersProcessor(str(folder))._processor
    engine = build_engine(folder, context_length=1024)
    assert engine.info.reads_images
    prompts = ImagePrompter(ENTRY, str(folder))
    with serving(engine, load_tokenizer(str(folder)), TEMPLATE, image_prompts=prompts) as served:
        yield Pair(served, model, processor)


def part(image: Image) -> dict[str, Any]:
    data = file_of(PIL.Image.frombytes("RGB", (image.width, image.height), image.pixels))
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def without_end(token_ids: list[int]) -> list[int]:
    return token_ids[: token_ids.index(1)] if 1 in token_ids else token_ids


def test_chats_with_images_equal_transformers(pair: Pair) -> None:
    """One image, several, and one in history; a repeated one is cached."""
    a, b = picture(1, 96, 80), picture(2, 64, 112)
    text = {"type": "text", "text": "what is in"}
    chats: list[tuple[list[dict[str, Any]], str, list[Image]]] = [
        ([{"role": "user", "content": [text, part(a)]}], f"user: what is in{IMAGE}\n", [a]),
        (
            [{"role": "user", "content": [part(b), text, part(a)]}],
            f"user: {IMAGE}what is in{IMAGE}\n",
            [b, a],
        ),
        (
            [
                {"role": "user", "content": [part(a), text]},
                {"role": "assistant", "content": "a cat"},
                {"role": "user", "content": "sure?"},
            ],
            f"user: {IMAGE}what is in\nassistant: a cat\nuser: sure?\n",
            [a],
        ),
    ]
    for messages, prompt, images in chats:
        expected = pair.expected(prompt, images)
        for _ in range(2):
            reply = pair.answer(messages)
            assert without_end(reply["choices"][0]["token_ids"]) == without_end(expected)
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == reply["usage"]["prompt_tokens"] - 1


def test_images_count_as_tokens(pair: Pair) -> None:
    text = {"type": "text", "text": "x"}
    with_image = pair.answer([{"role": "user", "content": [text, part(picture(1))]}])
    without = pair.answer([{"role": "user", "content": [text]}])
    grown = with_image["usage"]["prompt_tokens"] - without["usage"]["prompt_tokens"]
    assert (
        grown == 2 + 2 * 2
    )  # two marks, and a token for each 2 x 2 patches of 8 x 8 pixels; 40 x 32 becomes 32 x 32


def test_choices_share_their_images(pair: Pair) -> None:
    reply = pair.answer([{"role": "user", "content": [part(picture(3))]}], n=3)
    texts = {tuple(choice["token_ids"]) for choice in reply["choices"]}
    assert len(texts) == 1


def test_prepared_images_end_with_requests(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory counts until then, for two choices and in a stream that the client leaves, too."""
    counted: list[PreparedImages] = []
    count = PreparedImages.count

    def noting(self: PreparedImages, tenant: str, spans: Any, **fields: Any) -> None:
        count(self, tenant, spans, **fields)
        assert self.used > 0
        counted.append(self)

    monkeypatch.setattr(PreparedImages, "count", noting)
    messages = [{"role": "user", "content": [part(picture(4))]}]
    pair.answer(messages, n=2)
    with httpx.stream(
        "POST", f"{pair.served.url}/v1/chat/completions", json={"messages": messages, "stream": True}
    ) as reply:
        next(reply.iter_lines())
    deadline = time.monotonic() + 20
    while counted[0].used and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert (len(counted), counted[0].used) == (2, 0)


def test_the_model_s_own_limits_are_told(pair: Pair) -> None:
    """The second image of a request is too narrow for the model's processor, which no other limit forbids."""
    content = [part(picture(1)), part(picture(2, 4, 1000))]
    reply = pair.served.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == "invalid_image"
    assert error["message"].startswith("image 2 cannot be prepared for the model: absolute aspect ratio")
    metrics = httpx.get(f"{pair.served.url}/metrics").text
    assert 'llmfw_images_refused_total{reason="model"} 1.0' in metrics


def test_a_placeholder_in_the_text_is_refused(pair: Pair) -> None:
    content = [part(picture(1)), {"type": "text", "text": "<|image_pad|>"}]
    reply = pair.served.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})
    assert reply.status_code == 400
    assert "which stands for an image" in reply.json()["error"]["message"]
