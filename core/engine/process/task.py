"""Chooses whether to generate text, compute embeddings or classify, from `--task` and the model's files."""

from __future__ import annotations

from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.config.model_kind import ENCODERS_WITH_HEADS, generates, other_task

from ..embedding.pooling import has_modules

HEAD = "ForSequenceClassification"
"""Suffix of the names of classes with a classification head."""


def choose_task(config: EngineConfig) -> str:
    """Return the task to serve a model for: "generate", "embed" or "classify".

    With "auto", a model embeds if it has a modules.json of sentence-transformers, or if its config names the
    architecture of an encoder without a head (`*Model`). The model classifies if the architecture has a head
    for classification (`*ForSequenceClassification`). Any other model generates.

    Raises:
        ConfigError: the model cannot perform the task; the message gives the reason.
    """
    architectures = _architectures(config.model)
    is_decoder = any(map(generates, architectures))
    is_encoder = bool(architectures) and not is_decoder
    embeds = has_modules(config.model)
    task = config.task
    has_head = any(name.endswith(HEAD) for name in architectures)
    if task == "classify" and not has_head:
        shown = ", ".join(architectures) or "no architecture in its config.json"
        raise ModelError(
            f"model {config.model!r} ({shown}) has no classification head: --task classify serves …{HEAD}"
        )
    if has_head and (task == "classify" or (task == "auto" and not embeds)):
        return "classify"
    if is_encoder:
        _refuse_others(config.model, architectures, embeds=embeds and task != "generate")
    if task == "auto":
        bare = is_encoder and any(name.endswith("Model") for name in architectures)
        task = "embed" if embeds or bare else "generate"
    shown = ", ".join(architectures)
    if task == "generate" and is_encoder:
        raise ModelError(
            f"model {config.model!r} ({shown}) is an encoder: it has no head that generates text; "
            "serve it with --task embed"
        )
    if task == "embed" and is_decoder and not embeds:
        raise ModelError(
            f"model {config.model!r} ({shown}) generates text, and has no modules.json of sentence-transformers "
            "that says how its outputs become a vector; serve it with --task generate"
        )
    return task


def _refuse_others(model: str, architectures: list[str], *, embeds: bool) -> None:
    """Raise ModelError for a model that neither generates text nor computes embeddings.

    Args:
        embeds: whether the model is to embed and has files of sentence-transformers; its head is then not
            used.
    """
    for name in architectures:
        if (what := other_task(name)) and not embeds:
            raise ModelError(
                f"model {model!r} ({name}) {what}; llmfw serves models that generate text, embed, or classify by …ForSequenceClassification"
            )
        if not what and not name.endswith(("Model", *ENCODERS_WITH_HEADS)):
            raise ModelError(
                f"model {model!r} names the architecture {name:.80}, which llmfw does not know; it serves …ForCausalLM, "
                "and embeds with …Model. If the model is one of these, correct architectures in its config.json"
            )


def _architectures(model: str) -> list[str]:
    try:
        found: Any = AutoConfig.from_pretrained(model, trust_remote_code=False).architectures
    except Exception:  # noqa: BLE001 - a hostile config may raise anything; loading the model reports the error
        return []
    names = found if isinstance(found, list) else [found]
    return [name for name in names if isinstance(name, str)]
