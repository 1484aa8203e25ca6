"""The parts of a model that read images. The parts are in the module tree only while they encode.

So changes of the model for serving, such as quantization and module passes, do not affect these parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmfw.core.base.histogram import CALL_BOUNDS, Histogram
from llmfw.core.base.media import MediaArray

DEEPSTACK = ("visual_pos_masks", "deepstack_visual_embeds")
"""Arguments of a decoder that adds rows of an encoded image to the output of its first layers (Qwen3-VL)."""


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """The output of a model's encoder for one image.

    Attributes:
        embeddings: rows in the place of tokens' embeddings: [N, width].
        deeper: rows that are added to the output of the first layers, one tensor for each of them: [N, width].
    """

    embeddings: torch.Tensor
    deeper: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows of an encoded image for the tokens of a step.

    Attributes:
        image: the encoded image.
        places: indices of the tokens among the T tokens of the step: [N].
        rows: index of the image's row for each of these tokens: [N].
    """

    image: EncodedImage
    places: torch.Tensor
    rows: torch.Tensor


class ImageEncoder:
    """Encodes images, and prepares the input of the decoder for steps with images.

    Args:
        model: transformers' model, in evaluation mode, without `parts` in its module tree.
        parts: the parts that read images, as `split_off_others` returns them.
        cache_bytes: memory in bytes for cached encoded images.
        processor: full name of the media processor that prepares the images.

    Attributes:
        cache_bytes, processor: the constructor's arguments.
        seconds: seconds that the device took to encode the images of requests.
        looks_ahead: whether the tokens of an image attend to each other in both directions. The trial of the
            model's images sets it.

    Raises:
        AttributeError: the model has no method `get_image_features`.
    """

    def __init__(
        self,
        model: Any,
        parts: Sequence[tuple[nn.Module, str, nn.Module]],
        cache_bytes: int,
        processor: str = "",
    ) -> None:
        self.cache_bytes = cache_bytes
        self.processor = processor
        self.seconds = Histogram.empty(CALL_BOUNDS)
        self.looks_ahead = False
        self._model = model
        self._base: Any = model.base_model
        self._parts = list(parts)
        self._names = list(inspect.signature(self._base.get_image_features).parameters)
        self._deeper: dict[str, Any] | None = None
        self._hook: Any = None
        self._row_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Size of the parts' weights in bytes."""
        return sum(weights.nbytes for _, _, part in self._parts for weights in part.parameters())

    @property
    def row_bytes(self) -> int:
        """Size in bytes of a row of an encoded image, with its deeper rows. Encode an image first."""
        assert self._row_bytes, "no image has been encoded"
        return self._row_bytes

    @property
    def counts_axes(self) -> bool:
        """Whether the model counts positions of images on three axes."""
        return hasattr(self._base, "get_rope_index")

    def encode(self, tensors: Mapping[str, torch.Tensor]) -> EncodedImage:
        """Encode one image.

        Args:
            tensors: the encoder's inputs by argument name, on the model's device.
        """
        given = {name: self._cast(tensor) for name, tensor in tensors.items() if name in self._names}
        with self.attached():
            found = self._base.get_image_features(**given, return_dict=True)
        rows = _rows(found.pooler_output)
        deeper = tuple(map(_rows, getattr(found, "deepstack_features", None) or ()))
        self._row_bytes = rows[0].nbytes * (1 + len(deeper))
        return EncodedImage(rows, deeper)

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor of floats to the model's dtype, as transformers requires; keep other tensors."""
        return tensor.to(self._model.dtype) if tensor.is_floating_point() else tensor

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Within the block, put the parts into the module tree."""
        for parent, name, part in self._parts:
            setattr(parent, name, part)
        try:
            yield
        finally:
            for parent, name, _ in self._parts:
                setattr(parent, name, None)

    @contextmanager
    def placing(self, ids: torch.Tensor, placed: Sequence[PlacedRows]) -> Iterator[dict[str, torch.Tensor]]:
        """Return the arguments of the model for a step with images, and have its decoder add the deeper rows.

        Args:
            ids: token ids: [T].
            placed: rows of images; no token takes more than one row.

        Returns:
            A context of the arguments that replace `input_ids`.
        """
        embeddings = self._model.get_input_embeddings()(ids[None])
        places = torch.cat([each.places for each in placed])
        rows = torch.cat([each.image.embeddings[each.rows] for each in placed])
        embeddings[0].index_copy_(0, places, rows.to(embeddings.dtype))
        if placed and placed[0].image.deeper:
            self._deeper = self._deeper_arguments(placed, places, len(ids))
        try:
            yield {"inputs_embeds": embeddings}
        finally:
            self._deeper = None

    def axes(
        self, ids: torch.Tensor, is_image: torch.Tensor, grids: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, int]:
        """Return the positions of a prompt on three axes, [3, N], and the offset of later tokens.

        The position of a token after the prompt is its index plus the offset.

        Args:
            ids: token ids: [N].
            is_image: whether each token takes a row of an image: [N].
            grids: further tensors of the images by name, one row for each image.
        """
        names = inspect.signature(self._base.get_rope_index).parameters
        given = {"mm_token_type_ids": is_image.int()[None], **grids}
        given = {name: tensor for name, tensor in given.items() if name in names}
        positions, shifts = self._base.get_rope_index(input_ids=ids[None], **given)
        return positions[-3:, 0], int(shifts.flatten()[0])

    def _deeper_arguments(
        self, placed: Sequence[PlacedRows], places: torch.Tensor, num_tokens: int
    ) -> dict[str, Any]:
        """Return the decoder's arguments for deeper rows; its mask takes them in the order of the tokens."""
        if self._hook is None:
            self._hook = self._decoder().register_forward_pre_hook(self._add_deeper, with_kwargs=True)
        order = places.argsort()
        mask = torch.zeros(1, num_tokens, dtype=torch.bool, device=places.device)
        mask[0, places] = True
        deeper = [
            torch.cat([each.image.deeper[i][each.rows] for each in placed])[order]
            for i in range(len(placed[0].image.deeper))
        ]
        return dict(zip(DEEPSTACK, (mask, deeper), strict=True))

    def _decoder(self) -> nn.Module:
        for module in self._base.modules():
            if set(DEEPSTACK) <= set(inspect.signature(module.forward).parameters):
                found: nn.Module = module
                return found
        raise TypeError(f"{type(self._model).__name__} has no module that takes {' and '.join(DEEPSTACK)}")

    def _add_deeper(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, kwargs if self._deeper is None else {**kwargs, **self._deeper}


def tensors_of(arrays: Mapping[str, MediaArray], device: torch.device) -> dict[str, torch.Tensor]:
    """Return tensors on a device from plain data, by name."""
    return {name: torch.from_numpy(array.numpy().copy()).to(device) for name, array in arrays.items()}


def _rows(found: Any) -> torch.Tensor:
    """Return the rows of one image, [N, width], from an encoder's output.

    The output is a tensor, or a list with a tensor for each part of the image.
    """
    if not isinstance(found, torch.Tensor):
        found = torch.cat([each.reshape(-1, each.shape[-1]) for each in found])
    rows: torch.Tensor = found.reshape(-1, found.shape[-1])
    return rows
