"""Log probabilities of the demo model over HTTP are transformers' own."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from openai.types.chat import ChatCompletion
from transformers import AutoModelForCausalLM

from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ..doubles.serving import Served
from .test_completions import complete

PROMPTS = ["The capital of France is Paris.", "Grüße aus 東京 🎉, it said. Once upon a time there was"]
CHAT: Any = [{"role": "user", "content": "List 3 countries and their capitals."}]

ASKED = {"temperature": 0, "max_tokens": 16, "logprobs": True, "top_logprobs": 3}


@pytest.fixture(scope="module")
def reference() -> Any:
    path = resolve_model("demo", load_plugins().registry).path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

    def logprobs(token_ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([token_ids])).logits[0].log_softmax(-1)

    return logprobs


@pytest.mark.parametrize("as_token_ids", [False, True])
def test_scored_prompts_equal_transformers_logprobs(
    demo_server: Served, demo: Tokenizer, reference: Any, as_token_ids: bool
) -> None:
    ids = [demo.encode(prompt) for prompt in PROMPTS]
    fields = {"max_tokens": 1, "echo": True, "logprobs": 1, "seed": 1234, "temperature": 0}
    body = complete(demo_server, prompt=ids if as_token_ids else PROMPTS, **fields)
    for choice, token_ids, text in zip(body["choices"], ids, PROMPTS, strict=True):
        expected = reference(token_ids)
        own = expected[:-1].gather(1, torch.tensor(token_ids[1:]).unsqueeze(1)).squeeze(1)
        best, found = expected.max(-1).values, choice["logprobs"]
        assert found["token_logprobs"][1:-1] == pytest.approx(own.tolist(), abs=1e-3)
        assert [max(top.values()) for top in found["top_logprobs"][1:]] == pytest.approx(
            best.tolist(), abs=1e-3
        )
        assert choice["text"].startswith(text)


@pytest.mark.parametrize("prompt", [PROMPTS[1], "<|im_start|>user\nHi<|im_end|>\n"])
def test_each_token_s_text_is_at_its_offset(demo_server: Served, prompt: str) -> None:
    [choice] = complete(demo_server, prompt=prompt, echo=True, logprobs=0, temperature=0)["choices"]
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    for name, offset in zip(tokens[:-1], offsets[:-1], strict=True):
        assert name.startswith("bytes:") or choice["text"].startswith(name, offset)


def test_hidden_special_tokens_take_no_offset(demo_server: Served) -> None:
    for skip, expected in ((True, [0, 0, 1, 1]), (False, [0, 10, 11, 23])):
        fields = {"prompt": [2, 10, 1, 11], "echo": True, "logprobs": 0, "max_tokens": 0}
        [choice] = complete(demo_server, **fields, skip_special_tokens=skip)["choices"]
        assert choice["logprobs"]["tokens"] == ["<|im_end|>", "(", "<|im_start|>", ")"]
        assert choice["logprobs"]["text_offset"] == expected


def test_chat_logprobs_equal_transformers(demo_server: Served, demo: Tokenizer, reference: Any) -> None:
    body = demo_server.post("/v1/chat/completions", {"messages": CHAT, **ASKED}).json()
    ChatCompletion.model_validate(body, strict=True)
    [choice] = body["choices"]
    entries = choice["logprobs"]["content"]
    assert bytes(b for e in entries for b in e["bytes"]).decode() == choice["message"]["content"]
    prompt = demo.encode(
        JinjaChatTemplate(demo.chat_template, demo.special_tokens).render(CHAT), add_special_tokens=False
    )
    answer = demo.encode(choice["message"]["content"], add_special_tokens=False)
    top = reference(prompt + answer)[len(prompt) - 1 : -1].topk(3).values
    found = [[t["logprob"] for t in e["top_logprobs"]] for e in entries]
    assert found == [pytest.approx(row, abs=1e-3) for row in top.tolist()]


def test_chat_chunks_have_all_logprob_entries(demo_server: Served) -> None:
    whole = demo_server.post("/v1/chat/completions", {"messages": CHAT, **ASKED}).json()["choices"][0][
        "logprobs"
    ]
    frames = demo_server.post("/v1/chat/completions", {"messages": CHAT, **ASKED, "stream": True}).text
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames.split("\n\n")[:-2]]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    streamed = [entry for part in parts if part for entry in part["content"]]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in whole["content"]]
    values = [[entry["logprob"] for entry in entries] for entries in (streamed, whole["content"])]
    assert values[0] == pytest.approx(values[1], abs=1e-4)
