"""Decides whether a model is served with images. If not, logs the reason."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn
from transformers.modeling_utils import PreTrainedModel

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import LLMFWError
from llmfw.core.interfaces.media_processor import MediaProcessor
from llmfw.core.plugin.media_choice import media_processor_entries
from llmfw.core.plugin.registry import Entry, Registry

from ..changes.text_part import num_bytes, split_off_others
from ..config.model_kind import inputs_of
from ..device.devices import gigabytes
from ..failure.load_failure import first_line
from .image_encoder import ImageEncoder
from .image_trial import ImagesRefusedError, check_images

logger = logging.getLogger(__name__)

Parts = list[tuple[nn.Module, str, nn.Module]]
"""Parts for inputs other than text: the module that had the part, its name there, and the part."""


def take_images(
    module: Any, config: EngineConfig, registry: Registry, vocab_size: int
) -> ImageEncoder | None:
    """Remove the parts for inputs other than text from a model's module tree; return its image encoder.

    Returns None if the model reads text alone, or if its other inputs are not served; the log says why.

    Raises:
        ModelError: the model cannot compute with text alone.
    """
    others = [name for name in inputs_of(module.config) if name != "text"]
    if not others:
        return None
    parts = split_off_others(module, vocab_size)
    reason = _why_not(module, config, others)
    if not reason:
        found, reason = _first_that_fits(module, parts, config, registry, vocab_size)
        if found is not None:
            return found
    logger.info(
        "%s also reads %s; llmfw serves its text alone (%s) and frees %s of other weights",
        *(
            type(module).__name__,
            " and ".join(others),
            reason,
            gigabytes(sum(num_bytes(part) for *_, part in parts)),
        ),
    )
    return None


def _why_not(module: Any, config: EngineConfig, others: list[str]) -> str:
    """Return a reason against serving images that is known without a trial; "" if there is none."""
    if "image" not in others:
        return "it reads no images"
    if not config.image_cache_mb:
        return "--image-cache-mb is 0"
    if config.adapters or config.max_adapters:
        return "there are adapters, which images are not served with"
    if not hasattr(module.base_model, "get_image_features"):
        return "its class offers no features of images"
    return ""


def _first_that_fits(
    module: Any, parts: Parts, config: EngineConfig, registry: Registry, vocab_size: int
) -> tuple[ImageEncoder | None, str]:
    """Return the encoder of a model's images with the first media processor that fits, and "".

    Tries the processors by descending rank. If none fits, returns None and the reason of each.
    """
    try:
        entries, reasons = media_processor_entries(registry)
    except LLMFWError as error:
        return None, first_line(error)
    for entry in entries:
        try:
            encoder = _checked(module, parts, config, entry, vocab_size)
        except (ImagesRefusedError, LLMFWError) as error:
            reason = first_line(error)
        except Exception as error:
            logger.debug("Images of %s cannot be served by %s", config.model, entry, exc_info=error)
            reason = f"{type(error).__name__}: {first_line(error)}"
        else:
            if reasons:
                logger.info(
                    "%s prepares the images, because others cannot: %s", entry.spoken, "; ".join(reasons)
                )
            return encoder, ""
        reasons.append(f"{entry.spoken}: {reason}" if len(entries) > 1 else reason)
    return None, "; ".join(reasons)


def _checked(module: Any, parts: Parts, config: EngineConfig, entry: Entry, vocab_size: int) -> ImageEncoder:
    """Return the encoder of a model's images with a media processor, after a comparison with transformers.

    Raises:
        ImagesRefusedError: the images cannot be served.
        ConfigError, ModelError, ComponentError: the model's processor cannot be built.
    """
    processor: MediaProcessor = entry.build(entry.load(), config.model)
    encoder = ImageEncoder(module, parts, config.image_cache_mb << 20, entry.full_name)
    for _, _, part in parts:
        _use_own_attention(part)
    check_images(module, encoder, processor, vocab_size)
    logger.info(
        "%s reads images; their encoder takes %s", type(module).__name__, gigabytes(encoder.num_bytes)
    )
    return encoder


def _use_own_attention(part: nn.Module) -> None:
    """Let a part that reads images use transformers' attention, because its layers attend both ways."""
    for module in part.modules():
        if isinstance(module, PreTrainedModel):
            try:
                module.set_attn_implementation("sdpa")
            except ValueError:
                module.set_attn_implementation("eager")
