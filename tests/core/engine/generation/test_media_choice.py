"""The engine takes the first media processor that fits the model, and the API process uses the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llmfw.api.services.components import image_prompts_of
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.media.prompter import ImagePrompter
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.media_transformers.processor import TransformersProcessor

from .running import registry
from .tiny_vision import save_vision_model


class Refuses(TransformersProcessor):
    """Refuses every model."""

    def __init__(self, model: str) -> None:
        raise ModelError("it reads no model\nof this kind")


class Breaks(TransformersProcessor):
    """Fails on the pictures of the trial."""

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        raise ZeroDivisionError("no pixels")


class Mistakes(TransformersProcessor):
    """Makes a token of an image that the model's text part does not have."""

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        prompt = super().process(text, images)
        return MediaPrompt([*prompt.token_ids[:-1], 10**6], prompt.spans)


def entry(component: type, rank: int, name: str = "") -> Entry:
    name = name or component.__name__.lower()
    path = f"{component.__module__}:{component.__name__}"
    return Entry("media_processor", name, path, "house", "llmfw-house", "1.2", rank=rank)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp("model"), "llava")


def engine_with(folder: Path, *entries: Entry) -> Engine:
    config = EngineConfig(
        model=str(folder), device="cpu", dtype="float32", context_length=256, grammar="none"
    )
    return build_generation_engine(config, registry(*entries))


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (Refuses, "it reads no model"),
        (Breaks, "ZeroDivisionError: no pixels"),
        (Mistakes, "makes tokens that its text part does not have"),
    ],
)
def test_the_next_processor_follows_one_that_refuses(
    folder: Path, component: type, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        engine = engine_with(folder, entry(component, 10))
    assert engine.info.reads_images
    assert engine.info.media_processor == "media_transformers/images"
    assert reason in caplog.text


def test_the_api_uses_the_first_that_fits(folder: Path) -> None:
    """The lower one is not tried, and the API process prepares images with the one that the engine has chosen."""
    entries = (
        entry(Refuses, 10),
        entry(TransformersProcessor, 5, "ours"),
        entry(Breaks, -1),
    )
    info = engine_with(folder, *entries).info
    assert info.media_processor == "house/ours"
    prompts = image_prompts_of(info, registry(*entries))
    assert isinstance(prompts, ImagePrompter)
    assert prompts._entry == entries[1]


def test_one_line_has_the_reason_of_each(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    bundled = next(each for each in registry().entries("media_processor"))
    broken = replace(bundled, path=f"{__name__}:Mistakes")
    others = [each for each in registry()._entries if each != bundled]
    config = EngineConfig(
        model=str(folder), device="cpu", dtype="float32", context_length=256, grammar="none"
    )
    with caplog.at_level("INFO"):
        every = [*others, broken, entry(Refuses, 10), entry(Breaks, 5)]
        engine = build_generation_engine(config, type(registry())(every))
    assert (engine.info.reads_images, engine.info.media_processor) == (False, "")
    [line] = [record.getMessage() for record in caplog.records if "serves its text alone" in record.message]
    for said in (
        "'refuses' of plugin 'house'",
        "it reads no model",
        "'breaks' of plugin",
        "ZeroDivisionError",
        "text part",
    ):
        assert said in line
    assert "\n" not in line
