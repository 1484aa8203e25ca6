"""Prompts with images are prepared in a process that may crash, hang or fail at that request's expense alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmfw.core.base.errors import ComponentError, ComponentFailedError, OverloadedError, RequestError
from llmfw.core.image_prompts.prompter import ImagePrompter
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing.media_processors import example_image

from ...doubles.crashing_images import CrashingImages

ENTRY = Entry(
    "media_processor", "double", f"{CrashingImages.__module__}:CrashingImages", "tests", "llmfw-tests", "1.0"
)
IMAGES = [example_image(1)]


@pytest.fixture(autouse=True)
def _doubles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


@pytest.fixture
async def prompter() -> AsyncIterator[ImagePrompter]:
    made = ImagePrompter("model", ENTRY, prompt_s=2.0, max_bytes=1 << 30)
    yield made
    await made.close()


async def test_prompt_crosses_whole(prompter: ImagePrompter) -> None:
    found = await prompter.prompt("text", IMAGES)
    assert found.token_ids == [7] * 9 + [4]
    assert found.spans[0].tensors["pixels"].data == IMAGES[0].pixels
    assert found.spans[0].key == IMAGES[0].digest


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("crash", ComponentFailedError),
        ("hang", RequestError),
        ("memory", RequestError),
        ("fail", ComponentFailedError),
        ("refuse", RequestError),
    ],
)
async def test_bad_image_costs_one_request(
    prompter: ImagePrompter, text: str, error: type[Exception]
) -> None:
    """What waits behind it, and what comes later, is answered."""
    bad, good = await asyncio.gather(
        prompter.prompt(text, IMAGES), prompter.prompt("text", IMAGES), return_exceptions=True
    )
    assert type(bad) is error
    assert "secret" not in str(bad)
    assert not isinstance(good, BaseException), good
    assert (await prompter.prompt("more", IMAGES)).token_ids[-1] == 4


async def test_cancelled_prompt_leaves_no_answer(prompter: ImagePrompter) -> None:
    await prompter.prompt("text", IMAGES)
    task = asyncio.create_task(prompter.prompt("hang", IMAGES))
    await asyncio.sleep(0.1)
    task.cancel()
    assert (await prompter.prompt("longer text", IMAGES)).token_ids[-1] == len("longer text")


async def test_unbuilt_processor_is_told() -> None:
    prompter = ImagePrompter("unbuilt", ENTRY)
    with pytest.raises(ComponentError, match="no such model"):
        await prompter.prompt("text", IMAGES)
    assert prompter.pid is None


async def test_closed_prompter_refuses(prompter: ImagePrompter) -> None:
    await prompter.prompt("text", IMAGES)
    await prompter.close()
    with pytest.raises(OverloadedError):
        await prompter.prompt("text", IMAGES)
