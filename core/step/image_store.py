"""Encoded images on the device, and the rows that a step's tokens take from them."""

from __future__ import annotations

import torch

from llmfw.core.base.step import ImageInput, ImagePart, StepImages
from llmfw.core.model.images.image_encoder import EncodedImage, ImageEncoder, PlacedRows, tensors_of

from .device.device_times import DeviceTimes


class ImageStore:
    """Encodes images that steps name, and keeps them until a step drops them.

    Args:
        encoder: encoder of the model.
        device: device on which steps run.
    """

    def __init__(self, encoder: ImageEncoder, device: torch.device) -> None:
        self.encoder = encoder
        self._device = device
        self._kept: dict[bytes, EncodedImage] = {}
        self._times = DeviceTimes(device, encoder.seconds)

    def begin(self, images: StepImages) -> list[PlacedRows]:
        """Drop and encode the images that a step names; return the rows that the step's tokens take.

        Raises:
            ValueError: the number of rows that the encoder returns for an image differs from the number in
                the prompt.
        """
        self._times.collect()
        for key in images.dropped:
            self._kept.pop(key, None)
        for image in images.encoded:
            self._kept[image.key] = self._encode(image)
        return [self._placed(part) for part in images.parts if len(part.places)]

    def _encode(self, image: ImageInput) -> EncodedImage:
        with self._times.measuring():
            found = self.encoder.encode(tensors_of(image.tensors, self._device))
        if len(found.embeddings) != image.num_rows:
            raise ValueError(
                f"the encoder has {len(found.embeddings)} rows for an image, and its prompt {image.num_rows} tokens"
            )
        return found

    def _placed(self, part: ImagePart) -> PlacedRows:
        places, rows = (torch.from_numpy(column).to(self._device) for column in (part.places, part.rows))
        return PlacedRows(self._kept[part.key], places, rows)
