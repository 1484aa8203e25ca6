"""Images are decoded where a crash, a hang or a bomb costs the request that brought them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from llmfw.core.base.errors import ComponentError, OverloadedError
from llmfw.core.base.image import Image, image_of
from llmfw.core.media.decoder import ImageDecoder
from llmfw.core.media.limits import ImageLimits, ImageRefusedError

from ...doubles.picture_files import file_of, hostile_files, picture_of
from ...length import of_length

ROOT = Path(__file__).parents[3]
LIMITS = ImageLimits(cpu_s=1.0, memory_mb=128, pixels=2**22)
QUICK = msgspec.structs.replace(LIMITS, cpu_s=0.5)
HOSTILE = (sys.executable, str(ROOT / "tests" / "doubles" / "hostile_picture.py"))
FOREIGN_WORDS = re.compile(r"PIL|Error|\b0x[0-9a-f]{6}|/|object at|Traceback|image file")
"""Words of Pillow's own texts, which may hold addresses of memory."""


@pytest_asyncio.fixture
async def decoder() -> AsyncIterator[ImageDecoder]:
    found = ImageDecoder(LIMITS)
    yield found
    await found.close()


@pytest_asyncio.fixture
async def hostile() -> AsyncIterator[ImageDecoder]:
    found = ImageDecoder(QUICK, command=HOSTILE)
    yield found
    await found.close()


async def refusal(decoder: ImageDecoder, data: bytes) -> ImageRefusedError:
    with pytest.raises(ImageRefusedError) as caught:
        await decoder.decode(data)
    return caught.value


async def test_an_image_comes_back_with_its_digest(decoder: ImageDecoder) -> None:
    picture = picture_of(31, 17)
    image = await decoder.decode(file_of(picture))
    assert image == image_of(31, 17, picture.tobytes())


async def test_each_hostile_file_costs_only_itself(decoder: ImageDecoder) -> None:
    """300 files: none but refusals and images come back, in words of our own, and the same workers decode a good one."""
    files = hostile_files()[:: of_length(5, 1)]
    good = picture_of()
    await decoder.decode(file_of(good))

    async def outcome(data: bytes) -> Image | ImageRefusedError:
        try:
            return await decoder.decode(data, "hostile")
        except ImageRefusedError as error:
            return error

    before = set(decoder.worker_pids)
    outcomes = await asyncio.gather(*(outcome(data) for _, data in files))
    for (name, _), found in zip(files, outcomes, strict=True):
        if isinstance(found, ImageRefusedError):
            assert not FOREIGN_WORDS.search(str(found)), (name, str(found))
        else:
            assert len(found.pixels) == 3 * found.width * found.height, name
    assert before <= set(decoder.worker_pids), "a worker ended"
    assert (await decoder.decode(file_of(good))).pixels == good.tobytes()


async def test_a_hanging_image_does_not_delay_others(hostile: ImageDecoder) -> None:
    for act in ("hang", "spin"):
        slow = asyncio.create_task(hostile.decode(act.encode(), "bad"))
        await asyncio.sleep(0.05)
        assert (await hostile.decode(file_of(picture_of()), "good")).width == 40
        assert not slow.done()
        with pytest.raises(ImageRefusedError) as caught:
            await slow
        assert caught.value.reason == "cost"


@pytest.mark.parametrize(("act", "reason"), [("eat", "cost"), ("crash", "crash"), ("flood", "crash")])
async def test_a_bad_image_is_refused(hostile: ImageDecoder, act: str, reason: str) -> None:
    assert (await refusal(hostile, act.encode())).reason == reason
    assert (await hostile.decode(file_of(picture_of()))).width == 40


async def test_an_answer_without_its_pixels_is_refused(hostile: ImageDecoder) -> None:
    with pytest.raises(OverloadedError):
        await hostile.decode(b"forge")
    assert (await hostile.decode(file_of(picture_of()))).width == 40


async def test_a_child_reaches_no_files_or_sockets(hostile: ImageDecoder) -> None:
    assert (await hostile.decode(b"escape")).pixels == bytes(48)


async def test_a_killed_worker_is_replaced(decoder: ImageDecoder) -> None:
    data = file_of(picture_of())
    await decoder.decode(data)
    [pid] = decoder.worker_pids
    os.kill(pid, signal.SIGKILL)
    assert (await decoder.decode(data)).width == 40
    assert decoder.worker_pids != [pid]


async def test_a_job_that_ends_processes_is_given_up(tmp_path: Path) -> None:
    """It gets one new process, and no third one."""
    code = f"""
import os
from llmfw.core.ipc.fork_server import connected
from llmfw.core.media.messages import decode_job
from llmfw.core.media.worker import Decoding

open(os.path.join({str(tmp_path)!r}, str(os.getpid())), "w")
Decoding.longest_s = lambda self, job: os._exit(1) if decode_job(job).size == 1 else 20.0
connected().serve(Decoding())
"""
    decoder = ImageDecoder(LIMITS, command=(sys.executable, "-c", code))
    with pytest.raises(ImageRefusedError):
        await decoder.decode(b"it is no image")
    with pytest.raises(OverloadedError):
        await decoder.decode(b"x")
    assert len([*tmp_path.iterdir()]) == 2
    await decoder.close()


async def test_tenants_take_turns(hostile: ImageDecoder) -> None:
    """One tenant's queue of slow images delays another one's image by at most those that run."""
    slow = [asyncio.create_task(hostile.decode(b"spin", "many")) for _ in range(30)]
    await asyncio.sleep(0)
    assert (await hostile.decode(file_of(picture_of()), "one")).width == 40
    assert sum(task.done() for task in slow) <= 2 * LIMITS.workers
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_full_queue_refuses_the_longest_line() -> None:
    decoder = ImageDecoder(ImageLimits(max_waiting=3, workers=1))
    data = file_of(picture_of())
    found = await asyncio.gather(*(decoder.decode(data, "many") for _ in range(9)), return_exceptions=True)
    assert sum(isinstance(each, Image) for each in found) >= 3
    assert {type(each) for each in found} == {Image, OverloadedError}
    await decoder.close()


async def test_closing_ends_workers_and_callers(hostile: ImageDecoder) -> None:
    await hostile.decode(file_of(picture_of()))
    [pid] = hostile.worker_pids
    waiting = [asyncio.create_task(hostile.decode(b"hang")) for _ in range(4)]
    await asyncio.sleep(0.2)
    await hostile.close()
    assert {type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)} == {
        OverloadedError
    }
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(OverloadedError):
        await hostile.decode(b"")


async def test_missing_pillow_is_said_with_a_hint() -> None:
    code = "import sys; sys.modules['PIL'] = None; from llmfw.core.media.worker import main; main()"
    decoder = ImageDecoder(LIMITS, command=(sys.executable, "-c", code))
    with pytest.raises(ComponentError, match=r"pip install 'llmfw-engine\[images\]'"):
        await decoder.decode(b"x")
    await decoder.close()


async def test_the_time_of_each_image_is_reported() -> None:
    seconds: list[float] = []
    decoder = ImageDecoder(LIMITS, observe=seconds.append)
    await decoder.decode(file_of(picture_of()))
    assert len(seconds) == 1
    await decoder.close()
