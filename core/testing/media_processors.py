"""Conformance tests of the `MediaProcessor` interface."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import ClassVar

import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.interfaces.media_processor import MediaProcessor

SIZES = ((64, 48), (40, 100), (33, 17))
NUM_CHANGED = 3
"""Number of images that differ in one byte from the first image."""
ODD_SIZES = ((1, 1), (1, 300), (300, 1), (2, 1000))


class MediaProcessorTests:
    """Conformance tests of a media processor.

    Derive from this class and override the fixtures `processor_class` and `folder`.
    """

    needed: ClassVar = {"folder": (str, "the folder of a model that reads images")}

    @pytest.fixture
    def processor_class(self) -> type[MediaProcessor]:
        """Return the class of the processor under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture processor_class")

    @pytest.fixture
    def folder(self) -> str:
        """Return the folder of a model that the processor prepares images for."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture folder")

    @pytest.fixture
    def processor(self, processor_class: type[MediaProcessor], folder: str) -> MediaProcessor:
        """Return the processor under test, built for the model."""
        return processor_class(folder)

    def test_spans_begin_and_end_with_rows(self, processor: MediaProcessor) -> None:
        for count in (1, 2, 3):
            prompt = _process(processor, [example_image(i, *SIZES[i]) for i in range(count)])
            assert len(prompt.spans) == count
            end = 0
            for span in prompt.spans:
                assert end <= span.offset < span.end <= len(prompt.token_ids)
                assert prompt.token_ids[span.offset] == prompt.token_ids[span.end - 1] == span.token_id
                assert len(span.key) == 32, f"a key has {len(span.key)} bytes; it must have 32"
                end = span.end

    def test_rows_are_in_spans_alone(self, processor: MediaProcessor) -> None:
        prompt = _process(processor, [example_image(0), example_image(1)])
        inside = sum(prompt.token_ids[span.offset : span.end].count(span.token_id) for span in prompt.spans)
        assert inside == prompt.token_ids.count(prompt.spans[0].token_id)

    def test_keys_tell_images_apart(self, processor: MediaProcessor) -> None:
        first, again, other = (_process(processor, [example_image(i)]).spans[0].key for i in (0, 0, 1))
        assert first == again, "an image has another key when it comes again"
        keys = {_process(processor, [each]).spans[0].key for each in _one_pixel_apart()}
        assert len({first, other, *keys}) == 2 + NUM_CHANGED, "two images have one key"

    def test_pixels_of_earlier_images_never_return(
        self, processor_class: type[MediaProcessor], folder: str
    ) -> None:
        """Images of one size have the tensors that a new processor makes, after other images and before."""
        images = [example_image(0), *_one_pixel_apart(), example_image(1)]
        alone = [_process(processor_class(folder), [each]).spans[0] for each in images]
        for order in (range(len(images)), range(len(images) - 1, -1, -1)):
            processor = processor_class(folder)
            for i in order:
                span = _process(processor, [images[i]]).spans[0]
                assert span.key == alone[i].key, "another key after other images of the same size"
                assert span.tensors == alone[i].tensors, "other tensors after other images of the same size"

    def test_other_images_change_nothing(self, processor: MediaProcessor) -> None:
        """An image has the same tensors, key and tokens alone and among other images."""
        images = [example_image(i, *SIZES[i]) for i in range(3)]
        together = _process(processor, images)
        for image, span in zip(images, together.spans, strict=True):
            alone = _process(processor, [image])
            assert span.tensors == alone.spans[0].tensors
            assert span.key == alone.spans[0].key
            ids = alone.token_ids[alone.spans[0].offset : alone.spans[0].end]
            assert together.token_ids[span.offset : span.end] == ids

    def test_tensors_are_readable(self, processor: MediaProcessor) -> None:
        for array in _process(processor, [example_image(0)]).spans[0].tensors.values():
            assert array.numpy().size

    def test_placeholders_must_match_images(self, processor: MediaProcessor) -> None:
        for text in ("text", f"{processor.placeholder} {processor.placeholder}"):
            with pytest.raises(RequestError):
                processor.process(text, [example_image(0)])

    def test_odd_sizes_are_no_fault(self, processor: MediaProcessor) -> None:
        """An image of any size is prepared, or refused with RequestError."""
        for width, height in ODD_SIZES:
            try:
                prompt = _process(processor, [example_image(0, width, height)])
            except RequestError:
                continue
            assert prompt.spans[0].length >= 1


def example_image(seed: int, width: int = 64, height: int = 48) -> Image:
    """Return an image whose pixels depend on a seed."""
    pixels = hashlib.shake_256(seed.to_bytes(4, "little")).digest(3 * width * height)
    return _image(width, height, pixels)


def _one_pixel_apart() -> Iterator[Image]:
    """Yield images of one size that differ from `example_image(0)` in one byte: the first, a middle one, the last."""
    known = example_image(0)
    for place in (0, len(known.pixels) // 2, len(known.pixels) - 1):
        pixels = bytearray(known.pixels)
        pixels[place] ^= 1
        yield _image(known.width, known.height, bytes(pixels))


def _image(width: int, height: int, pixels: bytes) -> Image:
    size = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return Image(width, height, pixels, hashlib.sha256(size + pixels).digest())


def _process(processor: MediaProcessor, images: list[Image]) -> MediaPrompt:
    text = "see " + " and ".join([processor.placeholder] * len(images)) + " here"
    return processor.process(text, images)
