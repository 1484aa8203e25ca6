"""Reads the images of a request: gets and decodes their files, and puts markers into the messages."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.media.decoder import ImageDecoder
from llmfw.core.media.limits import CODE, ImageLimits, ImageRefusedError

from .addresses import MediaPolicy
from .counts import ImageCounts
from .data_url import bytes_of_base64, bytes_of_data_url
from .image_budget import ImageBudget, ImageHold
from .part import ImagePart, Message, replaced

if TYPE_CHECKING:
    from .fetcher import ImageFetcher

ReadFile = Callable[[str, int], Awaitable[bytes]]
"""Returns the content of a file, by its id and its maximum size in bytes. Raises NotFoundError if the file is not the
caller's, RequestError if its purpose is not `vision`, and ImageRefusedError if it is larger."""

MAX_READ_AT_ONCE = 4  # images of one request
MAX_KEPT_BYTES = 64 * 2**20
"""Memory for decoded images that may come again: a conversation sends its images with each message."""
_DATA = "data:"
_SHORT = 2**20  # bytes whose digest is computed on the event loop


class ImageReader:
    """Reads the images of requests. All methods must be called in one event loop.

    Args:
        limits: limits of each image.
        policy: hosts from which images may be fetched.
        max_images: maximum number of images in a request.
        read_file: reads an uploaded file.
        fetcher: fetches images; None: a fetcher with `policy` and `limits`.

    Attributes:
        counts: counts and durations of the work on images so far.
    """

    def __init__(
        self,
        limits: ImageLimits,
        policy: MediaPolicy,
        max_images: int,
        read_file: ReadFile,
        fetcher: ImageFetcher | None = None,
    ) -> None:
        self.counts = ImageCounts()
        self._limits = limits
        self._max_images = max_images
        self._read_file = read_file
        if fetcher is None:
            from .fetcher import ImageFetcher  # brings HTTP clients, which text does not need

            fetcher = ImageFetcher(policy, limits)
        self._fetcher = fetcher
        self._decoder = ImageDecoder(limits, self.counts.decoding.add)
        self._budget = ImageBudget()
        self._kept: OrderedDict[bytes, Image] = OrderedDict()
        self._num_kept_bytes = 0

    def holding(self, tenant: str) -> AbstractContextManager[ImageHold]:
        """Count the bytes of one request until the block ends. The caller must drop the images by then."""
        return self._budget.holding(tenant)

    async def read(
        self, messages: Sequence[Message], tenant: str, hold: ImageHold
    ) -> tuple[Sequence[Message], list[Image]]:
        """Return the messages with `{"type": "image"}` in place of each `ImagePart`, and the images in this order.

        Raises:
            RequestError: an image is not accepted, or there are too many; names the part.
            OverloadedError: too many images are being read.
        """
        parts: list[ImagePart] = []
        marked = replaced(messages, partial(_marked, parts))
        if len(parts) > self._max_images:
            self.counts.refused["number"] += len(parts)
            raise RequestError(
                f"the request has {len(parts)} images; at most {self._max_images} are allowed",
                param=parts[self._max_images].param,
                code=CODE,
            )
        hold.add(sum(len(part.base64 or part.url or "") for part in parts))
        places = asyncio.Semaphore(MAX_READ_AT_ONCE)

        async def read(part: ImagePart) -> Image:
            async with places:
                return await self._image(part, tenant, hold)

        return marked, await _all(read(part) for part in parts)

    async def close(self) -> None:
        """End the processes that decode images."""
        await self._decoder.close()

    async def _image(self, part: ImagePart, tenant: str, hold: ImageHold) -> Image:
        try:
            image = await self._decoded(await self._file(part, tenant), tenant)
        except ImageRefusedError as error:
            self.counts.refused[error.reason] += 1
            raise RequestError(f"{part.param}: the image {error}", param=part.param, code=CODE) from None
        hold.add(len(image.pixels))
        self.counts.accepted += 1
        return image

    async def _file(self, part: ImagePart, tenant: str) -> bytes:
        if part.file_id is not None:
            try:
                return await self._read_file(part.file_id, self._limits.file_bytes)
            except NotFoundError as error:
                raise NotFoundError(f"{part.param}: {error}", param=part.param) from error
            except RequestError as error:
                raise RequestError(f"{part.param}: {error}", param=part.param, code=error.code) from error
        if part.base64 is not None:
            return await bytes_of_base64(part.base64, self._limits)
        assert part.url is not None
        if part.url[: len(_DATA)].lower() == _DATA:
            return await bytes_of_data_url(part.url, self._limits)
        started = perf_counter()
        try:
            return await self._fetcher.fetch(part.url, tenant)
        finally:
            self.counts.fetching.add(perf_counter() - started)

    async def _decoded(self, data: bytes, tenant: str) -> Image:
        key = _digest(data) if len(data) <= _SHORT else await asyncio.to_thread(_digest, data)
        if (image := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return image
        image = await self._decoder.decode(data, tenant)
        if key not in self._kept and 4 * len(image.pixels) <= MAX_KEPT_BYTES:
            self._kept[key] = image
            self._num_kept_bytes += len(image.pixels)
            while self._num_kept_bytes > MAX_KEPT_BYTES:
                self._num_kept_bytes -= len(self._kept.popitem(last=False)[1].pixels)
        return image


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _marked(parts: list[ImagePart], part: Any, param: str) -> Any:
    """Return a part in the form for chat templates. If it is an image, add it to `parts`."""
    if not isinstance(part, ImagePart):
        return part
    parts.append(part)
    return {"type": "image"} if part.detail is None else {"type": "image", "detail": part.detail}


async def _all(works: Any) -> list[Image]:
    """Return the results of all coroutines in order; if one fails, cancel the others and raise its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
