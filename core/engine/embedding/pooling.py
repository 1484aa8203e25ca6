"""Turns a model's outputs into one vector, as sentence-transformers' files next to the weights specify.

modules.json lists the modules to apply. llmfw supports those of nearly all published models: Transformer,
Pooling and Normalize. It refuses models with other modules, because omitting a module would silently change
the vectors.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils import cached_file

from llmfw.core.base.errors import ModelError
from llmfw.core.model.files.shards import is_inside
from llmfw.core.model.files.small_files import parse_json

logger = logging.getLogger(__name__)

LIBRARY = "sentence_transformers."
MODES = ("cls", "lasttoken", "max", "mean")
_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """Reduces hidden states to one vector per sequence.

    Attributes:
        mode: "cls" (the first token), "lasttoken", "max" or "mean".
        normalize: whether vectors are scaled to length 1.
        max_length: maximum length in tokens that the model is meant for; None: not specified.
        is_given: whether the model's files specify this pooling; if not, it is the default.
        size: number of dimensions of the hidden states, according to the files; None: not specified.
    """

    mode: str
    normalize: bool
    max_length: int | None = None
    is_given: bool = True
    size: int | None = None

    def __call__(
        self, hidden: torch.Tensor, mask: torch.Tensor, dimensions: list[int | None]
    ) -> list[torch.Tensor]:
        """Return a float32 vector for each of n sequences.

        Vectors are truncated to the given number of dimensions, and then normalized if `normalize` is true.

        Args:
            hidden: hidden states: [n, T, size].
            mask: 1 for tokens, 0 for the padding on their right: [n, T].
            dimensions: number of dimensions of each vector, [n]; None: all.
        """
        pooled = self._pool(hidden.float(), mask)
        vectors = [vector[:count] for vector, count in zip(pooled, dimensions, strict=True)]
        if self.normalize:
            return [torch.nn.functional.normalize(vector, dim=0) for vector in vectors]
        return vectors

    def _pool(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.mode == "cls":
            return hidden[:, 0]
        if self.mode == "lasttoken":
            return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
        inside = mask.unsqueeze(-1)
        if self.mode == "max":
            return hidden.masked_fill(inside == 0, -torch.inf).amax(1)
        return (hidden * inside).sum(1) / inside.sum(1)


def has_modules(model: str) -> bool:
    """Return whether a folder or hub id has files of sentence-transformers."""
    return _find(model, "modules.json") is not None


def prompt_names(model: str) -> tuple[str, ...]:
    """Return the names of the prompts that config_sentence_transformers.json has, without empty ones.

    Raises:
        ModelError: the file is not a JSON object, or its prompts are not texts.
    """
    content = _read(model, "config_sentence_transformers.json")
    prompts = content.get("prompts") or {} if isinstance(content, dict) else content or {}
    if not isinstance(prompts, dict):
        raise ModelError(f"model {model!r}: config_sentence_transformers.json must have an object of prompts")
    return tuple(sorted(str(name) for name, text in prompts.items() if text))


def load_pooling(model: str) -> Pooling:
    """Return the pooling that the model's files specify; without such files, the mean of all tokens.

    Raises:
        ModelError: the files cannot be read, are invalid, or specify something that llmfw does not support.
    """
    modules = _read(model, "modules.json")
    if modules is None:
        return Pooling("mean", normalize=False, is_given=False)
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and (module.get("path") == "" or is_inside(module.get("path")))
        for module in modules
    ):
        raise ModelError(
            f"model {model!r}: modules.json must be a list of modules, each with a path inside the model's folder"
        )
    types = [str(module.get("type", "")) for module in modules]
    kinds = [name.rpartition(".")[2] for name in types]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"model {model!r}: modules.json lists {', '.join(kinds)}; llmfw can do Transformer, Pooling and then "
            "Normalize or nothing"
        )
    if others := [name for name in types if not name.startswith(LIBRARY)]:
        raise ModelError(
            f"model {model!r}: modules.json has a module of type {others[0]!r:.80}, which is code of its own that llmfw never "
            f"runs; the types must start with {LIBRARY}"
        )
    if modules[0].get("path"):
        raise ModelError(
            f"model {model!r}: its weights are in {modules[0]['path']!r}; they must be in the folder of modules.json"
        )
    settings = _Settings(model, "sentence_bert_config.json")
    if settings.flag("do_lower_case"):
        raise ModelError(f"model {model!r}: do_lower_case in sentence_bert_config.json is not supported")
    _warn_of_prompt(model)
    pooling = _Settings(model, f"{modules[1]['path']}/config.json")
    old, new = pooling.size("word_embedding_dimension"), pooling.size("embedding_dimension")
    return Pooling(
        _mode(model, pooling),
        normalize="Normalize" in kinds,
        max_length=settings.size("max_seq_length"),
        size=old if new is None else new,
    )


class _Settings:
    """Reads fields of a JSON file, and refuses values of a wrong type.

    Args:
        model: a folder, or a hub id.
        name: name of the file. If it does not exist, all fields are absent.
    """

    def __init__(self, model: str, name: str) -> None:
        self.name = name
        self.content = _object(model, name)
        self._model = model

    def flag(self, field: str) -> bool:
        """Return a field that must be true or false. Absent and null count as false."""
        value = self.content.get(field)
        if value is not None and type(value) is not bool:
            raise self.refused(field, "true or false")
        return bool(value)

    def size(self, field: str) -> int | None:
        """Return a field that must be an integer of 1 or more; None if the field is absent or null."""
        value = self.content.get(field)
        if value is None:
            return None
        if type(value) is not int or value < 1:
            raise self.refused(field, "1 or more, or null")
        return value

    def refused(self, field: str, wanted: str) -> ModelError:
        """Return the error for a field whose value is not as `wanted` describes."""
        value = self.content.get(field)
        return ModelError(
            f"model {self._model!r}: {field} is {value!r:.60} in {self.name}; it must be {wanted}"
        )


def _mode(model: str, settings: _Settings) -> str:
    if not settings.content:
        raise ModelError(f"model {model!r}: modules.json names {settings.name}, which is not there or empty")
    asked = settings.content.get("pooling_mode")
    modes = [asked] if isinstance(asked, str) else asked
    if not modes:
        modes = [mode for old, mode in _OLD_NAMES.items() if settings.flag(old)]
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise settings.refused("pooling_mode", f"one of {', '.join(MODES)}")
    if len(modes) != 1 or modes[0] not in MODES:
        raise ModelError(
            f"model {model!r}: {settings.name} asks for pooling by {' and '.join(modes) or 'nothing'}; llmfw can do one of "
            + ", ".join(MODES)
        )
    if settings.content.get("include_prompt") is not None and not settings.flag("include_prompt"):
        logger.warning(
            "include_prompt is false in %s, which is not applied: the tokens of a prompt that a client puts before its "
            "input count as the others do",
            settings.name,
        )
    return str(modes[0])


def _warn_of_prompt(model: str) -> None:
    name = _object(model, "config_sentence_transformers.json").get("default_prompt_name")
    if name:
        logger.warning(
            "The model's default prompt %r is not added; put it before the input where it is wanted.", name
        )


def _find(model: str, name: str) -> str | None:
    path: str | None = cached_file(
        model,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return path


def _object(model: str, name: str) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file does not exist."""
    content = _read(model, name)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ModelError(f"model {model!r}: {name} does not hold a JSON object")
    return content


def _read(model: str, name: str) -> Any:
    path = _find(model, name)
    if path is None:
        return None
    return parse_json(Path(path))
