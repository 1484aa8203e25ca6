"""Compares images in packed rows with transformers' own forward pass, on two small pictures.

Also finds whether the tokens of an image attend to each other in both directions. The result decides whether
llmfw serves a model's images. There is no list of supported families.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt, MediaSpan, blocks_of, ends_of
from llmfw.core.interfaces.media_processor import MediaProcessor

from ..attention.hf_attention import marking_masks
from ..attention.mask_rules import MaskFunction, MaskMarkers
from ..trial.packed import Packed
from .image_encoder import ImageEncoder, PlacedRows, tensors_of
from .image_positions import with_positions

SIZES = ((64, 48), (40, 100))
"""Widths and heights of the pictures, in pixels."""
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""Maximum change of logits by rounding, relative to the largest logit."""


class ImagesRefusedError(Exception):
    """llmfw cannot serve a model's images; the text is the reason."""


def check_images(model: nn.Module, encoder: ImageEncoder, processor: MediaProcessor, vocab_size: int) -> None:
    """Raise ImagesRefusedError unless images in packed rows give the logits of transformers' forward pass.

    Sets `encoder.looks_ahead`.

    Args:
        model: the model, in evaluation mode, with llmfw's attention.
        encoder: its parts that read images.
        processor: its processor.
        vocab_size: upper bound of the token ids to test with.
    """
    prompts = [_prompt(processor, width, height) for width, height in SIZES]
    if any(max(prompt.token_ids) >= vocab_size for prompt in prompts):
        raise ImagesRefusedError("its processor makes tokens that its text part does not have")
    expected = [_expected(model, encoder, prompt) for prompt in prompts]
    found = _packed(model, encoder, prompts)
    tolerance = ROUNDING[next(model.parameters()).dtype]
    for before, after in zip(expected, found, strict=True):
        if not before.isfinite().all() or (after - before).abs().max() > tolerance * before.abs().max():
            raise ImagesRefusedError("its logits for an image in a packed row are not those of transformers")


def _prompt(processor: MediaProcessor, width: int, height: int) -> MediaPrompt:
    pixels = bytes(
        (7 * x + 13 * y + 90 * c + x * y) % 256 for y in range(height) for x in range(width) for c in range(3)
    )
    size = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    image = Image(width, height, pixels, hashlib.sha256(size + pixels).digest())
    return processor.process(f"{processor.placeholder} a picture", [image])


def _expected(model: Any, encoder: ImageEncoder, prompt: MediaPrompt) -> torch.Tensor:
    """Return transformers' logits for a prompt, [N, vocab]; refuse masks that are not causal."""
    device = next(model.parameters()).device
    ids = torch.tensor([prompt.token_ids], device=device)
    span = prompt.spans[0]
    is_image = (ids == span.token_id).int()
    given = {**tensors_of(span.tensors, device), "mm_token_type_ids": is_image, "token_type_ids": is_image}
    names = {
        *inspect.signature(model.forward).parameters,
        *inspect.signature(model.base_model.forward).parameters,
    }
    given = {
        name: tensor.to(model.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in given.items()
        if name in names
    }
    masks = MaskMarkers()
    step = _Observed(masks, _ends(prompt.token_ids, prompt.spans))
    try:
        with encoder.attached(), marking_masks(masks), torch.inference_mode():
            output = model(input_ids=ids, **given, use_cache=False, llmfw_step=step)
    finally:
        if hasattr(model.base_model, "rope_deltas"):
            # this prompt's delta; transformers would add it to other prompts' positions
            model.base_model.rope_deltas = None
    encoder.looks_ahead = step.looks_ahead
    logits: torch.Tensor = output.logits[0].float()
    return logits


def _packed(model: Any, encoder: ImageEncoder, prompts: Sequence[MediaPrompt]) -> list[torch.Tensor]:
    """Return the logits, [N, vocab] each, of prompts in one row, with a text before each prompt."""
    device = next(model.parameters()).device
    text = [prompts[0].token_ids[-1]] * 3
    rows, positions, placed = list[int](), list[torch.Tensor](), []
    lengths, ends = [], []
    for prompt in prompts:
        for ids, spans in ((text, ()), (prompt.token_ids, prompt.spans)):
            axes = torch.arange(len(ids)).expand(3, -1).clone()
            for span in with_positions(encoder, ids, spans):
                axes[:, span.end :] += span.shift
                if span.positions is not None:
                    axes[:, span.offset : span.end] = torch.from_numpy(span.positions.numpy().copy())
                takes = torch.tensor(ids[span.offset : span.end], device=device) == span.token_id
                places = takes.nonzero().flatten() + len(rows) + span.offset
                image = encoder.encode(tensors_of(span.tensors, device))
                if len(image.embeddings) != len(places):
                    raise ImagesRefusedError(
                        f"its encoder has {len(image.embeddings)} rows for an image with {len(places)} tokens"
                    )
                placed.append(PlacedRows(image, places, torch.arange(len(places), device=device)))
            positions.append(axes)
            lengths.append(len(ids))
            ends.append(_ends(ids, spans if encoder.looks_ahead else ()))
            rows += ids
    whole = torch.cat(positions, dim=1).to(device)
    row = torch.tensor(rows, device=device)
    with torch.inference_mode(), encoder.placing(row, placed) as given:
        logits = (
            model(
                **given,
                position_ids=whole[:, None] if encoder.counts_axes else whole[:1],
                use_cache=False,
                llmfw_step=_Looking(ends),
            )
            .logits[0]
            .float()
        )
    return list(logits.split(lengths))[1::2]


class _Looking(Packed):
    """Computes the attention of packed sequences, whose tokens may attend to later ones.

    Args:
        ends: for each sequence, the index after the last token that each token attends to: [N] each.
    """

    def __init__(self, ends: Sequence[torch.Tensor]) -> None:
        super().__init__([len(each) for each in ends])
        self._seen = [torch.arange(len(each), device="cpu") < each[:, None] for each in ends]

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: object,
    ) -> torch.Tensor:
        shared = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
        parts = zip(*(tensor.split(self._lengths, dim=2) for tensor in (query, key, value)), strict=True)
        found = [
            functional.scaled_dot_product_attention(q, k, v, attn_mask=seen.to(query.device))
            for (q, k, v), seen in zip(parts, self._seen, strict=True)
        ]
        return torch.cat(found, dim=2).transpose(1, 2)


class _Observed(Packed):
    """Computes the attention of one sequence, and finds whether the tokens of its image look ahead.

    Refuses layers whose masks are neither causal, nor causal but for the image.

    Args:
        masks: finds the rule of a mask.
        ends: index after the last token that each token attends to, if the image's tokens look ahead: [N].

    Attributes:
        looks_ahead: whether the tokens of the image look ahead, after the forward pass.
    """

    def __init__(self, masks: MaskMarkers, ends: torch.Tensor) -> None:
        super().__init__([len(ends)])
        self._masks = masks
        self._causal, self._ahead = torch.arange(len(ends), device="cpu") + 1, ends
        self._found: set[bool] = set()

    @property
    def looks_ahead(self) -> bool:
        return True in self._found

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: object,
    ) -> torch.Tensor:
        rule = None if attention_mask is None else self._masks.rule_of(attention_mask)
        if rule is None:
            raise ImagesRefusedError("its layers bring an attention mask of their own for images")
        ends = next((each for each in (self._causal, self._ahead) if _is_rule(rule, each)), None)
        if ends is None:
            raise ImagesRefusedError(
                "its attention is not causal, and not only the tokens of an image attend to later ones"
            )
        self._found.add(ends is self._ahead)
        if len(self._found) > 1:
            raise ImagesRefusedError(
                "the tokens of an image attend to later ones in some of its layers alone"
            )
        return _Looking([ends]).attend(module, query, key, value, attention_mask, **kwargs)


def _ends(ids: Sequence[int], spans: Sequence[MediaSpan]) -> torch.Tensor:
    """Return the index after the last token that each token attends to, [N], if tokens of images look ahead."""
    return torch.from_numpy(ends_of(blocks_of(np.array(ids, dtype=np.int32), spans), 0, len(ids)))


def _is_rule(rule: MaskFunction, ends: torch.Tensor) -> bool:
    """Return whether a mask lets each token of a row see those before its end, all or those within a window.

    Rules for images do not cover positions beyond the row, so the check calls rules for positions in the row.
    The window is that of the row's last token; a window that the row does not fill is found elsewhere, with
    text alone.
    """
    places = torch.arange(len(ends), device="cpu")
    zero = torch.zeros((), dtype=torch.long, device="cpu")
    try:
        seen = rule(zero, zero, places[:, None], places).expand(len(ends), len(ends))
    except (ValueError, IndexError):
        return False
    window = int(seen[-1].sum())
    return bool((seen == ((places < ends[:, None]) & (places[:, None] - places < window))).all())
