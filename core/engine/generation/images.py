"""Prepares requests with images: checks them, and computes positions."""

from __future__ import annotations

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.base.histogram import Histogram
from llmfw.core.base.media import MediaSpan
from llmfw.core.base.request import Request
from llmfw.core.model.images.image_encoder import ImageEncoder
from llmfw.core.model.images.image_positions import with_positions


class EngineImages:
    """Prepares requests with images.

    Args:
        encoder: the model's image encoder; None: the model reads no images.
    """

    def __init__(self, encoder: ImageEncoder | None) -> None:
        self._encoder = encoder

    @property
    def seconds(self) -> Histogram | None:
        """Seconds that encoding each image took; None: the model reads no images."""
        return None if self._encoder is None else msgspec.structs.replace(self._encoder.seconds)

    def placed(self, request: Request) -> Request:
        """Return a request with the rotary positions of its images.

        Raises:
            RequestError: the model is served without images, or the images do not fit the prompt.
        """
        if not request.media:
            return request
        if self._encoder is None:
            raise RequestError("the model is served without images; send text", param="messages")
        end = 0
        for span in request.media:
            _check_span(span, request.prompt, end)
            if self._encoder.looks_ahead and span.offset == end > 0:
                raise RequestError(
                    "two images follow one another without text between them; put text there", param="media"
                )
            end = span.end
        spans = with_positions(self._encoder, request.prompt, request.media)
        if self._encoder.looks_ahead:
            spans = tuple(msgspec.structs.replace(span, is_block=True) for span in spans)
        return msgspec.structs.replace(request, media=spans)


def _check_span(span: MediaSpan, prompt: list[int], start: int) -> None:
    """Raise RequestError unless a span fits the prompt.

    The span must lie within the prompt, begin at or after `start`, have at least one token and a key of 32
    bytes, and have its `token_id` at both ends.
    """
    is_within = start <= span.offset and span.length >= 1 and span.end <= len(prompt) and len(span.key) == 32
    if not (is_within and prompt[span.offset] == prompt[span.end - 1] == span.token_id):
        raise RequestError(
            f"an image is at [{span.offset}, {span.end}) of a prompt of {len(prompt)} tokens; it must begin and end with "
            f"token {span.token_id}, after the image before it",
            param="media",
        )
