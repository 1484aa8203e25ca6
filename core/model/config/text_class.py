"""Chooses transformers' class for a model: for text alone, or for text with images or sound."""

from __future__ import annotations

import logging
from typing import Any

from transformers.models.auto.modeling_auto import AutoModelForCausalLM, AutoModelForMultimodalLM

from llmfw.core.base.errors import ModelError

from .model_kind import inputs_of

logger = logging.getLogger(__name__)


def class_for_text(path: str, hf_config: Any) -> Any:
    """Return the auto class of transformers that loads a decoder of text.

    The class is AutoModelForMultimodalLM for a model that also reads images or sound, in two cases: the text
    part has no class of its own, or the config names the class of the whole model. In the second case, the
    files have the names and the tensors of the whole model. Otherwise the class is AutoModelForCausalLM.

    Args:
        path: the model's folder or hub id, for messages.
        hf_config: the model's config.

    Raises:
        ModelError: the model is an encoder-decoder, or not a language model of transformers.
    """
    if getattr(hf_config, "is_encoder_decoder", False):
        raise ModelError(
            f"model {path!r} is an encoder-decoder ({hf_config.model_type}); llmfw serves decoders"
        )
    causal = _class_names(AutoModelForCausalLM, hf_config)
    multimodal = _class_names(AutoModelForMultimodalLM, hf_config)
    if multimodal and (not causal or set(hf_config.architectures or ()) & (multimodal - causal)):
        return AutoModelForMultimodalLM
    if causal:
        _warn_of_other_class(path, hf_config, causal)
        return AutoModelForCausalLM
    if others := [name for name in inputs_of(hf_config) if name != "text"]:
        raise ModelError(
            f"model {path!r} ({hf_config.model_type}) reads {', '.join(others)} besides text, and transformers has no "
            "class that generates text with it; llmfw serves text: take a text model of the family"
        )
    raise ModelError(
        f"model {path!r} ({hf_config.model_type}) is not a causal language model of transformers; llmfw serves those"
    )


def _class_names(auto_class: Any, hf_config: Any) -> set[str]:
    """Return the names of the classes that an auto class has for a config; empty if it has none."""
    if type(hf_config) not in auto_class._model_mapping:
        return set()
    found = auto_class._model_mapping[type(hf_config)]
    return {each.__name__ for each in (found if isinstance(found, tuple) else (found,))}


def _warn_of_other_class(path: str, hf_config: Any, taken: set[str]) -> None:
    """Log a warning if transformers does not use the architecture that a config names.

    transformers chooses the class by the model_type.

    Args:
        taken: names of the classes that transformers has for the model_type.
    """
    named = [
        name for name in hf_config.architectures or () if isinstance(name, str) and "ForCausalLM" in name
    ]
    if named and taken.isdisjoint(named):
        logger.warning(
            "config.json of %s names the architecture %s, which is served as %s by its model_type %r; compare its answers "
            "with its authors' code",
            *(path, ", ".join(named)[:80], " or ".join(sorted(taken)), hf_config.model_type),
        )
