"""What clients get from a server with the bundled logits processors, and from one without."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from llmfw.api.services.request_fields import build_request_fields
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving

XTC = {"xtc_probability": 1.0, "xtc_threshold": 0.02}
DRY = {"dry_multiplier": 20.0, "dry_allowed_length": 1, "dry_sequence_breakers": []}
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def processing() -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=16384, logits_processors="dry,xtc")
    fields = build_request_fields(config, ServerConfig(served_model_name="demo"), registry)
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(config, registry)
    with serving(
        engine, tokenizer, tokenizer.chat_template, name="demo", request_fields=fields, ledger=registry.ledger
    ) as served:
        yield served


def text_of(server: Served, path: str = "/v1/completions", **fields: Any) -> str:
    """Return the text of a reply, and check that no field was ignored."""
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "seed": 3, "temperature": 0.7} | fields
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    assert "llmfw-ignored-params" not in reply.headers
    text: str = reply.json()["choices"][0]["text"]
    return text


def test_the_fields_change_the_text_of_their_request(processing: Served) -> None:
    plain = text_of(processing)
    assert text_of(processing, xtc_probability=0, dry_multiplier=0) == plain
    changed = [text_of(processing, **fields) for fields in (XTC, DRY, XTC | DRY)]
    assert len({plain, *changed}) == 4


@pytest.mark.long
def test_a_seed_gives_the_same_text_beside_others(processing: Served) -> None:
    """The promise of `seed` holds with random numbers of processors, too."""
    bodies = [fields | {"seed": seed} for seed in range(3) for fields in (XTC, DRY, XTC | DRY, {})]
    alone = [text_of(processing, **fields) for fields in bodies]
    with ThreadPoolExecutor(len(bodies)) as threads:
        together = list(threads.map(lambda fields: text_of(processing, **fields), bodies))
    assert together == alone
    assert len(set(alone)) > 9


def test_dry_keeps_the_model_from_copying(processing: Served) -> None:
    """The demo model repeats a prompt word for word; DRY forbids that here."""
    words = "mirror has 154 flispion not lamp is drone horse grey 523"
    found = []
    for fields in ({}, DRY):
        messages = [{"role": "user", "content": f"Repeat: {words}"}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 40, **fields}
        found.append(processing.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"])
    assert words in found[0]
    assert "lamp is drone" not in found[1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"xtc_probability": 1.5}, "xtc_probability"),
        ({"dry_base": 0.5}, "dry_base"),
        ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0]"),
        ({"dry_multiplier": 1, "dry_sequence_breakers": ["\u2603 snowman"]}, "dry_sequence_breakers"),
        ({"dry_multiplier": 1, "dry_allowed_length": 60}, "dry_allowed_length"),
    ],
)
def test_wrong_arguments_are_refused_by_name(processing: Served, fields: dict[str, Any], said: str) -> None:
    reply = processing.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, said)


def test_fields_go_next_to_sampling_params(processing: Served) -> None:
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 3}}
    assert processing.post("/generate", body | XTC).status_code == 200
    reply = processing.post("/generate", {"text": PROMPT, "sampling_params": {"xtc_probability": 0.5}})
    assert reply.status_code == 400
    assert "xtc_probability is 0.5, which is not supported: put it next to sampling_params" in reply.text


def test_without_the_processor_the_error_says_how(demo_server: Served) -> None:
    for name in ("xtc_probability", "dry_multiplier"):
        reply = demo_server.post("/v1/completions", {"prompt": PROMPT, name: 0.5})
        assert reply.status_code == 400
        option = f"start the server with --logits-processors {name.partition('_')[0]}"
        assert option in reply.json()["error"]["message"]


def test_calls_are_counted_for_the_operator(processing: Served) -> None:
    text_of(processing, **XTC)
    metrics = httpx.get(f"{processing.url}/metrics").text
    lines = [
        line for line in metrics.splitlines() if 'kind="logits_processor"' in line and 'name="xtc"' in line
    ]
    assert max(float(line.rpartition(" ")[2]) for line in lines) >= 40
