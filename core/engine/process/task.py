"""What a model is there for, by its files: to generate text, or to make vectors of it."""

from __future__ import annotations

from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError

from ..embedding.pooling import has_modules

GENERATING = frozenset(
    name
    for names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    for name in ([names] if isinstance(names, str) else names)
    if not name.endswith("Model") or name.endswith("LMHeadModel")
)


def choose_task(config: EngineConfig) -> str:
    """Return "generate" or "embed".

    "auto": files of sentence-transformers (modules.json) say that a model embeds, whatever its architecture; else
    the architecture in its config does. `*Model` is an encoder without a head; anything else is taken to generate.

    Raises:
        ConfigError: the model cannot do what is asked for; with the reason.
    """
    architectures = _architectures(config.model)
    generates = any(map(_generates, architectures))
    is_encoder = bool(architectures) and not generates
    embeds = has_modules(config.model)
    task = config.task
    if task == "auto":
        bare = is_encoder and any(name.endswith("Model") for name in architectures)
        task = "embed" if embeds or bare else "generate"
    shown = ", ".join(architectures)
    if task == "generate" and is_encoder:
        raise ModelError(
            f"model {config.model!r} ({shown}) is an encoder: it has no head that generates text; "
            "serve it with --task embed"
        )
    if task == "embed" and generates and not embeds:
        raise ModelError(
            f"model {config.model!r} ({shown}) generates text, and has no modules.json of sentence-transformers "
            "that says how its outputs become a vector; serve it with --task generate"
        )
    return task


def _generates(architecture: str) -> bool:
    return architecture in GENERATING or "ForCausalLM" in architecture or "ForConditional" in architecture


def _architectures(model: str) -> list[str]:
    try:
        found: Any = AutoConfig.from_pretrained(model, trust_remote_code=False).architectures
    except Exception:  # noqa: BLE001 - a hostile config may raise anything; loading the model says what is wrong with it
        return []
    names = found if isinstance(found, list) else [found]
    return [name for name in names if isinstance(name, str)]
