"""Reads a model's recommended sampling parameters from its generation_config.json."""

from __future__ import annotations

import msgspec

from llmfw.core.base.errors import ModelError, RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.model.small_files import read_json
from llmfw.core.model.tokenizer_files import model_files

NAMES = ("temperature", "top_p", "top_k", "repetition_penalty", "min_p")


def load_sampling_defaults(model: str) -> dict[str, float]:
    """Return the model's sampling parameters by name; {} if it sets none or is not to be sampled.

    Args:
        model: a folder or a hub id.

    Raises:
        ModelError: the file cannot be read, or a value in it is out of range.
    """
    path = model_files(model) / "generation_config.json"
    config = read_json(path)
    if config.get("do_sample") is False:
        return {}
    found = {name: config[name] for name in NAMES if config.get(name) is not None}
    try:
        msgspec.convert(found, SamplingParams)
    except (RequestError, msgspec.ValidationError) as error:
        raise ModelError(f"{path}: {error}") from error
    return found
