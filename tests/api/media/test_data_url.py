"""data: URLs give their bytes, or an error in words of our own."""

from __future__ import annotations

import asyncio
import base64
import os

import pytest

from llmfw.api.media.data_url import bytes_of_base64, bytes_of_data_url
from llmfw.core.media.limits import ImageLimits, ImageRefusedError

LIMITS = ImageLimits(file_bytes=2**20)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 196_607, 196_608, 196_609, 1_000_000])
async def test_data_of_any_size_come_back(size: int) -> None:
    data = os.urandom(size)
    text = base64.b64encode(data).decode()
    assert await bytes_of_data_url(f"data:image/png;base64,{text}", LIMITS) == data
    lines = base64.encodebytes(data).decode()
    assert await bytes_of_base64(lines, LIMITS) == data


@pytest.mark.parametrize(
    "url",
    [
        *("data:", "data:,", "data:image/png,abc", "data:;base64", "data:image/svg+xml;utf8,<svg/>"),
        *(
            "data:image/png;base64,a",
            "data:image/png;base64,ab=c",
            "data:image/png;base64,YWJj\u00e4",
            "data:;base64,a-b_",
        ),
        f"data:{'x' * 500};base64,YWJj",
    ],
)
async def test_what_is_no_base64_is_refused(url: str) -> None:
    with pytest.raises(ImageRefusedError) as caught:
        await bytes_of_data_url(url, LIMITS)
    assert caught.value.reason == "source"


async def test_too_many_bytes_are_not_decoded() -> None:
    with pytest.raises(ImageRefusedError) as caught:
        await bytes_of_data_url("data:;base64," + "A" * 4_000_000, LIMITS)
    assert caught.value.reason == "bytes"


async def test_long_data_let_others_run_meanwhile() -> None:
    text = base64.b64encode(bytes(10**6)).decode()
    task = asyncio.create_task(bytes_of_base64(text, LIMITS))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
