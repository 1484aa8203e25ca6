"""Images are prepared for a model where a crash, a hang or a defect costs the request that brought them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from llmfw.core.base.errors import ComponentError, ComponentFailedError, OverloadedError, RequestError
from llmfw.core.base.image import Image, image_of
from llmfw.core.media.prompter import ImagePrompter
from llmfw.core.plugin.registry import Entry

ENTRY = Entry(
    kind="media_processor",
    name="acting",
    path="tests.doubles.acting_processor:ActingProcessor",
    plugin="acts",
    distribution="acts",
    version="1",
)


@pytest_asyncio.fixture
async def prompter() -> AsyncIterator[ImagePrompter]:
    found = ImagePrompter(ENTRY, "folder", cpu_s=0.5, memory_mb=128)
    yield found
    await found.close()


def image(seed: int) -> Image:
    return image_of(2, 3, bytes([seed]) * 18)


async def test_a_prompt_comes_back_with_its_images(prompter: ImagePrompter) -> None:
    prompt = await prompter.prompt("a<image>b<image>", [image(1), image(2)])
    assert prompt.token_ids == [97, 0, 98, 0]
    assert [(span.offset, span.key) for span in prompt.spans] == [(1, image(1).digest), (3, image(2).digest)]
    assert prompt.spans[1].tensors["pixels"].numpy().tolist() == [[[2] * 3] * 2] * 3


@pytest.mark.parametrize(
    ("act", "told", "code"),
    [
        ("hang", "take more than 0.5 s", "invalid_image"),
        ("spin", "take more than 0.5 s", "invalid_image"),
        ("eat", "take more than 128 MiB", "invalid_image"),
        ("crash", "preparing the images for the model failed", "invalid_image"),
        ("<image><image>", "1 images", None),
    ],
)
async def test_a_bad_prompt_is_refused(
    prompter: ImagePrompter, act: str, told: str, code: str | None
) -> None:
    with pytest.raises(RequestError, match=told) as caught:
        await prompter.prompt(act, [image(1)])
    assert (caught.value.param, caught.value.code) == ("messages", code)
    assert (await prompter.prompt("<image>", [image(1)])).token_ids == [0]


async def test_a_hanging_prompt_does_not_delay_others(prompter: ImagePrompter) -> None:
    await prompter.start()
    slow = asyncio.create_task(prompter.prompt("hang", [], "bad"))
    await asyncio.sleep(0.05)
    assert (await prompter.prompt("<image>", [image(1)], "good")).token_ids == [0]
    assert not slow.done()
    slow.cancel()


async def test_a_defect_of_the_processor_names_it(
    prompter: ImagePrompter, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ComponentFailedError, match=r"'acting'.* failed in process\(\): KeyError$"):
        await prompter.prompt("raise", [])
    assert "a defect" in caplog.text


async def test_an_unbuildable_processor_tells_its_reason() -> None:
    prompter = ImagePrompter(ENTRY, "broken")
    for call in (prompter.start(), prompter.prompt("x", [])):
        with pytest.raises(ComponentError, match="the model has no pictures"):
            await call
    await prompter.close()


async def test_closing_ends_callers(prompter: ImagePrompter) -> None:
    await prompter.start()
    waiting = asyncio.create_task(prompter.prompt("hang", []))
    await asyncio.sleep(0.1)
    await prompter.close()
    with pytest.raises(OverloadedError):
        await waiting
