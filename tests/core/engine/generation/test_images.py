"""An engine answers prompts with images exactly as transformers' own processor and `generate` do."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
import transformers
from transformers import AutoModelForMultimodalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import LEAST_SHARED, MediaPrompt, MediaSpan
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.media_transformers.processor import TransformersProcessor

from ....doubles.static_attention import Rerun, StaticAttention
from ....length import also, of_length
from .running import build_engine, generate, registry
from .tiny_vision import DIFFERENT, OTHERS, picture, save_vision_model

NUM_TOKENS = 12
STATIC = Entry(
    "attention", "static", f"{StaticAttention.__module__}:StaticAttention", "tests", "llmfw-tests", "1.0"
)
WORDS = (
    "what is in",
    "and in this",
    "this",
    "compare a with b:",
    "x",
    "say what you see on the left side of",
)


@dataclass
class Served:
    """A model's folder, its media processor, and transformers' own model and processor."""

    folder: Path
    processor: TransformersProcessor
    model: Any
    answers: dict[tuple[str, tuple[Image, ...], int], list[int]] = field(default_factory=dict)

    def prompt(self, seed: int, num_images: int) -> tuple[str, list[Image]]:
        """Return a random text with images of random sizes; seeds that are equal modulo 5 share their first image."""
        rng = random.Random(seed)
        images = []
        text = WORDS[seed % len(WORDS)]
        for i in range(num_images):
            images.append(
                picture(seed % 5)
                if i == 0
                else picture(seed, 8 * rng.randrange(3, 12), 8 * rng.randrange(3, 12))
            )
            text += f" {self.processor.placeholder} {rng.choice(WORDS)}"
        return text, images

    def expected(self, text: str, images: Sequence[Image], num_tokens: int = NUM_TOKENS) -> list[int]:
        """Return what transformers generates, greedily. Several tests ask for the same."""
        asked = (text, tuple(images), num_tokens)
        if asked not in self.answers:
            self.answers[asked] = self._expected(*asked)
        return self.answers[asked]

    def _expected(self, text: str, images: Sequence[Image], num_tokens: int) -> list[int]:
        pictures = [PIL.Image.frombytes("RGB", (it.width, it.height), it.pixels) for it in images]
        given = self.processor._processor(
            text=[text],
            **({"images": pictures} if pictures else {}),
            return_tensors="pt",
            add_special_tokens=False,
        )
        if "token_type_ids" not in inspect.signature(self.model.forward).parameters:
            given.pop("token_type_ids", None)
        if hasattr(self.model.model, "rope_deltas"):
            self.model.model.rope_deltas = None
        whole = self.model.generate(
            **given, max_new_tokens=num_tokens, do_sample=False, eos_token_id=1, pad_token_id=2
        )
        found: list[int] = whole[0, given["input_ids"].shape[1] :].tolist()
        return found

    def request(self, name: str, text: str, images: Sequence[Image], **changes: Any) -> Request:
        """Return the request of a prompt."""
        prompt = MediaPrompt(
            self.processor._processor.tokenizer(text, add_special_tokens=False)["input_ids"], ()
        )
        if images:
            prompt = self.processor.process(text, images)
        sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
        fields = {"sampling": sampling, "eos_token_ids": (1,)} | changes
        return Request(id=name, prompt=prompt.token_ids, media=prompt.spans, **fields)


@functools.cache
def _served(folder: Path, family: str) -> Served:
    save_vision_model(folder, family)
    model = AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Served(folder, TransformersProcessor(str(folder)), model)


def is_newest() -> bool:
    """Return whether transformers is not the oldest one that is allowed."""
    return tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 23)


@pytest.fixture(scope="module", params=[*DIFFERENT, *also(OTHERS)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    try:
        return _served(tmp_path_factory.mktemp(request.param), request.param)
    except ImportError as error:
        if "Torchvision" not in str(error) or is_newest():
            raise
        pytest.skip("this older transformers needs torchvision for the family's images")


def texts(engine: Engine, requests: Sequence[Request], seed: int | None = None) -> list[list[int]]:
    outcomes = generate(engine, requests, seed=seed)
    assert all(outcome.end.error is None for outcome in outcomes), [outcome.end.error for outcome in outcomes]
    return [_without_end(outcome.token_ids) for outcome in outcomes]


def _without_end(token_ids: list[int]) -> list[int]:
    return token_ids[: token_ids.index(1)] if 1 in token_ids else token_ids


@pytest.mark.parametrize("overlap", [False, True])
def test_batch_equals_transformers(served: Served, overlap: bool) -> None:
    """One image, several and none, in one batch whose chunks cut images, in both loops."""
    engine = build_engine(served.folder, overlap=overlap, chunked_prefill_size=13, context_length=1024)
    prompts = [served.prompt(seed, seed % 4) for seed in range(of_length(8, 16))]
    requests = [served.request(str(i), *prompt) for i, prompt in enumerate(prompts)]
    expected = [_without_end(served.expected(*prompt)) for prompt in prompts]
    assert texts(engine, requests, seed=3) == expected


def test_image_decides_text(served: Served) -> None:
    """The comparisons of this file can fail: other images get other answers."""
    text, _ = served.prompt(1, 1)
    answers = {tuple(served.expected(text, [picture(seed)])) for seed in range(4)}
    assert len(answers) > 1


def test_repeated_image_hits(served: Served) -> None:
    """An image that comes again takes its keys and values from the prefix cache; another one does not."""
    engine = build_engine(served.folder, context_length=1024)
    if engine._pages.states is not None:
        pytest.skip("a prompt is continued where a snapshot is: test_states_tell_images_apart")
    text, images = served.prompt(4, 2)
    others = [*images[:1], picture(99, images[1].width, images[1].height)]
    whole, (first, second) = served.request("a", text, images).prompt, served.request("a", text, images).media
    # The text between the images is the same; an image of less than 9 tokens is never shared.
    shared = second.offset if first.length >= LEAST_SHARED else first.offset
    cached = len(whole) - 1 if min(first.length, second.length) >= LEAST_SHARED else shared
    for pictures, expected in ((images, 0), (images, cached), (others, shared)):
        (outcome,) = generate(engine, [served.request("a", text, pictures)])
        assert _without_end(outcome.token_ids) == _without_end(served.expected(text, pictures))
        assert outcome.events[0].cached_tokens == expected


def test_retracted_images_are_encoded_again(served: Served) -> None:
    """With little memory for keys, values and images, answers stay the same."""
    prompts = [(f"a {served.processor.placeholder} b", [picture(seed)]) for seed in range(6)]
    requests = [served.request(str(i), *prompt) for i, prompt in enumerate(prompts)]
    room = 2 * len(requests[0].prompt) + NUM_TOKENS + 2  # for two prompts, and for less than two answers
    engine = build_engine(
        served.folder,
        max_total_tokens=room,
        chunked_prefill_size=16,
        schedule_conservativeness=0.01,
        disable_radix_cache=True,
    )
    engine._pages.images._max_bytes = 1  # one image at a time
    expected = [_without_end(served.expected(*prompt)) for prompt in prompts]
    assert texts(engine, requests) == expected
    assert engine.stats().num_retractions


def test_seed_is_kept_in_company(served: Served) -> None:
    """A seed means the same text alone and among others."""
    sampling = [SamplingParams(temperature=0.8, seed=i, max_tokens=NUM_TOKENS) for i in range(6)]
    requests = [
        served.request(str(i), *served.prompt(i, 1 + i % 2), sampling=each) for i, each in enumerate(sampling)
    ]
    together = texts(build_engine(served.folder, context_length=1024), requests, seed=1)
    engine = build_engine(served.folder, context_length=1024, disable_radix_cache=True)
    assert together == [texts(engine, [request])[0] for request in requests]


def test_same_image_is_encoded_once(served: Served) -> None:
    """An image in several requests of one batch, and in later ones, is encoded once."""
    engine = build_engine(served.folder, context_length=1024, disable_radix_cache=True)
    requests = [
        served.request(str(i), f"{'x' * i} {served.processor.placeholder} what?", [picture(1)])
        for i in range(5)
    ]
    texts(engine, requests[:3])
    texts(engine, requests[3:])
    stats = engine.stats()
    assert (stats.num_images_encoded, stats.num_images_found) == (1, 4)
    assert stats.image_seconds is not None
    assert sum(stats.image_seconds.counts) == 1
    assert stats.image_seconds.seconds > 0


def test_decode_steps_with_images_are_captured(served: Served) -> None:
    """Steps of single tokens replay graphs, with the positions of the sequences' images."""
    prompts = [served.prompt(seed, 1 + seed % 2) for seed in range(5)]
    requests = [served.request(str(i), *prompt) for i, prompt in enumerate(prompts)]
    settings = {"dtype": "float32", "device": "cpu", "attention": "static", "context_length": 256}
    settings["cuda_graph_max_bs"] = len(requests)  # each size is captured by a run of the model
    replayed: list[int] = []
    engine = build_generation_engine(
        EngineConfig(model=str(served.folder), grammar="none", **settings),  # type: ignore[arg-type]
        registry(STATIC),
        make_graph=lambda: Rerun(replayed),
    )
    if engine._pages.states is not None:
        pytest.skip("steps with states are not captured")
    expected = [_without_end(served.expected(*prompt)) for prompt in prompts]
    captured = len(replayed)
    assert texts(engine, requests) == expected
    assert len(replayed) > captured


def test_states_tell_images_apart(tmp_path: Path) -> None:
    """A snapshot of states is taken up again after the same image, and never after another one in its place."""
    served = _served(tmp_path, "qwen3.5")
    engine = build_engine(served.folder, context_length=1024)
    if not (engine.info.reads_images or is_newest()):
        pytest.skip("with this older transformers, the family is served as text")
    text = f"{'look: ' * 12}{served.processor.placeholder}{' what is it?' * 8}"
    first, other = picture(1, 120, 96), picture(2, 120, 96)
    (span,) = served.request("a", text, [first]).media
    cached = []
    for image in (first, first, other, other, first):
        (outcome,) = generate(engine, [served.request("a", text, [image])])
        assert _without_end(outcome.token_ids) == _without_end(served.expected(text, [image]))
        cached.append(outcome.events[0].cached_tokens)
    assert cached[1] > span.end
    assert cached[2] <= span.offset
    assert min(cached[3:]) > span.end


def test_text_that_looks_ahead_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PaliGemma's whole prompt attends to itself in both directions, which its images' trial says, too."""
    with caplog.at_level("INFO"), pytest.raises(ModelError, match="attends to later tokens"):
        build_engine(save_vision_model(tmp_path, "paligemma"))
    assert "not only the tokens of an image attend to later ones" in caplog.text


def test_no_cache_for_images_means_text(tmp_path: Path) -> None:
    """With --image-cache-mb 0 the encoder is freed, text is answered, and a request with an image is told so."""
    engine = build_engine(save_vision_model(tmp_path, "llava"), image_cache_mb=0)
    assert not engine.info.reads_images
    span = MediaSpan(offset=0, length=1, key=bytes(32), token_id=300, tensors={})
    with pytest.raises(RequestError, match="without images"):
        engine.add(Request(id="a", prompt=[300, 5], sampling=SamplingParams(max_tokens=2), media=(span,)))
    (outcome,) = generate(engine, [Request(id="b", prompt=[9, 5], sampling=SamplingParams(max_tokens=2))])
    assert outcome.end.error is None


def test_blocks_follow_each_other_with_text_between(tmp_path: Path) -> None:
    """transformers would let two such images see each other, so a prompt with both is refused."""
    engine = build_engine(save_vision_model(tmp_path, "gemma3"))
    spans = [MediaSpan(offset=i, length=1, key=bytes(32), token_id=300, tensors={}) for i in (1, 2)]
    with pytest.raises(RequestError, match="without text between"):
        engine.add(
            Request(
                id="a", prompt=[7, 300, 300, 5], sampling=SamplingParams(max_tokens=2), media=tuple(spans)
            )
        )
