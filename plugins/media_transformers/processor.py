"""Converts a prompt's text and images to tokens and tensors, with transformers' processor of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image

from llmfw.core.imports.hf import import_processors

import_processors()  # before the first import of transformers

from transformers.models.auto.configuration_auto import AutoConfig

from llmfw.core import Image, MediaArray, MediaProcessor, MediaPrompt, MediaSpan, ModelError, RequestError

from .images_only import load_processor

CODE = "invalid_image"
OF_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""Outputs of a processor that are not for the model's encoder."""


class TransformersProcessor(MediaProcessor):
    """Prepares images with transformers' processor of the model.

    Prepares several images of a prompt one by one, so the encoder's input for an image does not depend on
    other images.
    """

    def __init__(self, model: str) -> None:
        config: Any = AutoConfig.from_pretrained(model, local_files_only=True)
        self._processor = load_processor(model, config.model_type)
        placeholder = getattr(self._processor, "image_token", None)
        token_id = getattr(config, "image_token_id", getattr(config, "image_token_index", None))
        if not isinstance(placeholder, str) or not isinstance(token_id, int):
            raise ModelError(
                f"models of the type {config.model_type} name no token for images; serve text alone"
            )
        self.placeholder = placeholder
        self._token_id = token_id
        settings = json.dumps(self._processor.to_dict(), sort_keys=True, default=str)
        self._settings = hashlib.sha256(settings.encode()).digest()

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        """Return the tokens of a prompt."""
        if (count := text.count(self.placeholder)) != len(images):
            raise RequestError(
                f"the prompt has {count} times {self.placeholder!r}, which stands for an image, and {len(images)} images; "
                "leave it out of the text",
                param="messages",
            )
        pictures = [PIL.Image.frombytes("RGB", (each.width, each.height), each.pixels) for each in images]
        if len(images) == 1:
            each = [self._call(text, pictures, "the image")]
            whole = each[0]
        else:
            each = [self._call(self.placeholder, [it], f"image {i + 1}") for i, it in enumerate(pictures)]
            whole = self._call(text, pictures, "the images")
        ids = np.asarray(whole["input_ids"][0])
        return MediaPrompt(ids.tolist(), self._spans(ids, images, each))

    def _call(self, text: str, pictures: list[Any], what: str) -> Any:
        try:
            return self._processor(
                text=[text], images=pictures, return_tensors="pt", add_special_tokens=False
            )
        except ValueError as error:  # for example, an aspect ratio that is too large
            reason = (str(error).strip().splitlines() or ["ValueError"])[0]
            raise RequestError(
                f"{what} cannot be prepared for the model: {reason[:200]}", param="messages", code=CODE
            ) from error

    def _spans(self, ids: Any, images: Sequence[Image], each: list[Any]) -> tuple[MediaSpan, ...]:
        """Return the span of each image. In the prompt, the positions of the images follow one another."""
        places = np.flatnonzero(ids == self._token_id)
        counts = [int(np.count_nonzero(np.asarray(one["input_ids"][0]) == self._token_id)) for one in each]
        if sum(counts) != len(places) or not all(counts):
            raise RequestError(
                f"the prompt has {len(places)} places for rows of images, and its images have {counts}; leave special "
                "tokens out of the text",
                param="messages",
            )
        spans, first = [], 0
        for image, count, one in zip(images, counts, each, strict=True):
            offset, last = int(places[first]), int(places[first + count - 1])
            tensors = {name: MediaArray.of(one[name].numpy()) for name in one if name not in OF_TEXT}
            spans.append(
                MediaSpan(
                    offset=offset,
                    length=last + 1 - offset,
                    key=hashlib.sha256(self._settings + image.digest).digest(),
                    token_id=self._token_id,
                    tensors=tensors,
                )
            )
            first += count
        return tuple(spans)
