"""Media processors that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from llmfw.core import Image, MediaArray, MediaProcessor, MediaPrompt, MediaSpan, RequestError
from llmfw.core.testing import MediaProcessorTests

TOKEN = 256


class GoodProcessor(MediaProcessor):
    """Keeps all promises: what the others are measured by."""

    placeholder = "<image>"
    least_side = 1

    def __init__(self, model: str) -> None:
        self.calls = 0

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        self.calls += 1
        self.check(text, images)
        token_ids, spans = list[int](), list[MediaSpan]()
        for i, piece in enumerate(text.split(self.placeholder)):
            if 0 < i <= len(images):
                span = self.span(len(token_ids), images[i - 1], len(images))
                spans.append(span)
                token_ids += [span.token_id] * span.length
            token_ids += piece.encode()
        return MediaPrompt(token_ids, tuple(spans))

    def check(self, text: str, images: Sequence[Image]) -> None:
        if text.count(self.placeholder) != len(images):
            raise RequestError("the placeholders are not as many as the images")
        if any(min(each.width, each.height) < self.least_side for each in images):
            raise self.too_small()

    def too_small(self) -> Exception:
        return RequestError("the image is too small")

    def span(self, offset: int, image: Image, count: int) -> MediaSpan:
        values = np.frombuffer(image.pixels, np.uint8)[:48].astype(np.float32)
        return MediaSpan(
            offset=offset,
            length=9,
            key=self.key(image),
            token_id=TOKEN,
            tensors={"pixels": MediaArray.of(values)},
        )

    def key(self, image: Image) -> bytes:
        return hashlib.sha256(image.digest).digest()


class RefusesSmallImages(GoodProcessor):
    """A processor may refuse sizes, so this one keeps the promises, too."""

    least_side = 3


class ShortKeys(GoodProcessor):
    def key(self, image: Image) -> bytes:
        return super().key(image)[:16]


class KeysOfSizes(GoodProcessor):
    def key(self, image: Image) -> bytes:
        return hashlib.sha256(b"%d %d" % (image.width, image.height)).digest()


class KeysOfTheTop(GoodProcessor):
    def key(self, image: Image) -> bytes:
        return hashlib.sha256(image.pixels[:64]).digest()


class KeepsOneOfEachSize(GoodProcessor):
    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.kept: dict[tuple[int, int], dict[str, MediaArray]] = {}

    def span(self, offset: int, image: Image, count: int) -> MediaSpan:
        span = super().span(offset, image, count)
        tensors = self.kept.setdefault((image.width, image.height), dict(span.tensors))
        return msgspec.structs.replace(span, tensors=tensors)


class KeysOfCalls(GoodProcessor):
    def key(self, image: Image) -> bytes:
        return hashlib.sha256(b"%d" % self.calls).digest()


class SpansTooLong(GoodProcessor):
    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        found = super().process(text, images)
        spans = [msgspec.structs.replace(span, length=span.length + 1) for span in found.spans]
        return MediaPrompt(found.token_ids, tuple(spans))


class RowsBeforeImages(GoodProcessor):
    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        found = super().process(text, images)
        spans = [msgspec.structs.replace(span, offset=span.offset + 1) for span in found.spans]
        return MediaPrompt([TOKEN, *found.token_ids], tuple(spans))


class DependsOnCompany(GoodProcessor):
    def span(self, offset: int, image: Image, count: int) -> MediaSpan:
        values = np.full(count, image.pixels[0], np.float32)
        return msgspec.structs.replace(
            super().span(offset, image, count), tensors={"pixels": MediaArray.of(values)}
        )


class AcceptsAnyCount(GoodProcessor):
    def check(self, text: str, images: Sequence[Image]) -> None:
        pass


class FailsOnSmallImages(GoodProcessor):
    least_side = 3

    def too_small(self) -> Exception:
        return ZeroDivisionError("division by zero")


class UnreadableTensors(GoodProcessor):
    def span(self, offset: int, image: Image, count: int) -> MediaSpan:
        array = MediaArray("<f2", (2,), b"\x00" * 4)
        return msgspec.structs.replace(super().span(offset, image, count), tensors={"pixels": array})


class OfKind(MediaProcessorTests):
    kind: type[MediaProcessor]

    @pytest.fixture
    def processor_class(self) -> type[MediaProcessor]:
        return self.kind

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return str(tmp_path)


def test_class(kind: type[MediaProcessor]) -> Any:
    """Return a test class for a media processor."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodProcessor, *GoodProcessor.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
