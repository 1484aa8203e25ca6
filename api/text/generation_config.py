"""Reads a model's recommended sampling parameters from its generation_config.json."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from llmfw.core.base.errors import ModelError, RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.model.files.model_folder import model_files
from llmfw.core.model.files.small_files import read_json

logger = logging.getLogger(__name__)

NAMES = ("temperature", "top_p", "top_k", "repetition_penalty", "min_p")

NUMBER, WHOLE, FLAG = (int, float), (int,), (bool,)

NOT_APPLIED: dict[str, tuple[tuple[type, ...], tuple[Any, ...]]] = {
    "max_length": (WHOLE, (20,)),
    "max_new_tokens": (WHOLE, ()),
    "min_length": (WHOLE, (0,)),
    "min_new_tokens": (WHOLE, (0,)),
    "max_time": (NUMBER, ()),
    "stop_strings": ((str, list), ("", [])),
    "num_beams": (WHOLE, (1,)),
    "top_h": (NUMBER, ()),
    "typical_p": (NUMBER, (1,)),
    "epsilon_cutoff": (NUMBER, (0,)),
    "eta_cutoff": (NUMBER, (0,)),
    "encoder_repetition_penalty": (NUMBER, (1,)),
    "no_repeat_ngram_size": (WHOLE, (0,)),
    "encoder_no_repeat_ngram_size": (WHOLE, (0,)),
    "bad_words_ids": ((list,), ([],)),
    "force_words_ids": ((list,), ([],)),
    "forced_bos_token_id": (WHOLE, ()),
    "forced_eos_token_id": ((int, list), ([],)),
    "exponential_decay_length_penalty": ((list,), ([],)),
    "suppress_tokens": ((list,), ([],)),
    "begin_suppress_tokens": ((list,), ([],)),
    "sequence_bias": ((dict, list), ({}, [])),
    "token_healing": (FLAG, (False,)),
    "guidance_scale": (NUMBER, (1,)),
    "watermarking_config": ((dict,), ()),
    "penalty_alpha": (NUMBER, (0,)),
    "dola_layers": ((str, list), ([],)),
    "diversity_penalty": (NUMBER, (0,)),
    "constraints": ((list,), ([],)),
}
"""Fields that transformers applies and llmfw does not: field → (allowed types, values without effect)."""

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def load_sampling_defaults(model: str) -> dict[str, float]:
    """Return the model's sampling parameters by name; {} if the file sets none or has `do_sample: false`.

    Args:
        model: a folder or a hub id.

    Raises:
        ModelError: the file cannot be read, or a value in it has the wrong type or is out of range.
    """
    path = model_files(model) / "generation_config.json"
    config = read_json(path)
    for name, (kinds, _) in {"do_sample": (FLAG, ()), **NOT_APPLIED}.items():
        _check_type(path, name, config.get(name), kinds)
    is_sampled = config.get("do_sample") is not False
    found = {name: config[name] for name in NAMES if config.get(name) is not None}
    try:
        msgspec.convert(found if is_sampled else {}, SamplingParams)
    except (RequestError, msgspec.ValidationError) as error:
        raise ModelError(f"{path}: {error}") from error
    ignored = [name for name in NOT_APPLIED if _has_effect(name, config, path.parent)]
    if not is_sampled and found.get("repetition_penalty", 1) != 1:
        ignored.append("repetition_penalty")  # transformers applies it without sampling, too
    if ignored:
        logger.warning(
            "%s has fields that llmfw does not apply, and which change answers of transformers: %s; give requests the "
            "fields that llmfw has for these, or remove them",
            *(path, ", ".join(ignored)),
        )
    return found if is_sampled else {}


def _check_type(path: Path, name: str, value: Any, kinds: tuple[type, ...]) -> None:
    fits = value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)))
    if not fits:
        wanted = _WORDS[float] if kinds == NUMBER else " or ".join(_WORDS[kind] for kind in kinds)
        raise ModelError(f"{path}: {name} is {value!r:.60}; it must be {wanted}, or null")


def _has_effect(name: str, config: dict[str, Any], folder: Path) -> bool:
    value = config.get(name)
    if value is None or value in NOT_APPLIED[name][1]:
        return False
    if name == "max_length":  # often just the model's context
        context = read_json(folder / "config.json").get("max_position_embeddings")
        return not isinstance(context, int) or bool(value < context)
    return True
