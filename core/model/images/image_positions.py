"""Computes the rotary positions of a prompt with images, by the model's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from llmfw.core.base.errors import RequestError
from llmfw.core.base.media import MediaArray, MediaSpan

from .image_encoder import ImageEncoder, tensors_of

CPU = torch.device("cpu")


def with_positions(
    encoder: ImageEncoder, prompt: Sequence[int], spans: Sequence[MediaSpan]
) -> tuple[MediaSpan, ...]:
    """Return the images of a prompt with their rotary positions.

    Raises:
        RequestError: the positions of text between the images do not increase by one per token.
    """
    if not spans or not encoder.counts_axes:
        return tuple(spans)
    ids = torch.tensor(prompt, device=CPU)
    is_image = torch.zeros(len(prompt), dtype=torch.bool, device=CPU)
    for span in spans:
        is_image[span.offset : span.end] = ids[span.offset : span.end] == span.token_id
    each = [tensors_of(span.tensors, CPU) for span in spans]
    grids = {
        name: torch.cat([tensors[name] for tensors in each]) for name in each[0] if name.endswith("_thw")
    }
    found, last = encoder.axes(ids, is_image, grids)
    return _split(found.numpy(), last, spans)


def _split(positions: Any, last: int, spans: Sequence[MediaSpan]) -> tuple[MediaSpan, ...]:
    """Return the spans with their parts of a prompt's positions, [3, N]; check the text between them."""
    length, shift, start, placed = positions.shape[1], 0, 0, []
    for span in spans:
        _check_text(positions, start, span.offset, shift)
        shift = int(positions[0, span.end]) - span.end if span.end < length else last
        own = MediaArray.of(positions[:, span.offset : span.end].astype(np.int64))
        placed.append(msgspec.structs.replace(span, positions=own, shift=shift))
        start = span.end
    _check_text(positions, start, length, shift)
    if shift != last:
        raise RequestError(
            "the model counts positions after the prompt in a way that llmfw does not know; send text"
        )
    return tuple(placed)


def _check_text(positions: Any, start: int, end: int, shift: int) -> None:
    if (positions[:, start:end] != np.arange(start, end) + shift).any():
        raise RequestError(
            "the model counts the positions of text between images in a way that llmfw does not know; send text"
        )
