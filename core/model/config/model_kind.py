"""Classifies models by the names in their configs: generation, embedding, or a task that llmfw does not
serve."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, AutoModel

GENERATING = frozenset(
    name
    for names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    for name in ([names] if isinstance(names, str) else names)
    if not name.endswith("Model") or name.endswith("LMHeadModel")
)
OTHER_TASKS = (
    (
        r"Image|Object|Segment|Depth|Video|Keypoint|Pose|Vision|Table|Pointmap|Normal|TextRecog|Visual",
        "reads images",
    ),
    (r"Audio|Speech|CTC|RNNT|TDT|XVector|Wav", "reads or makes audio"),
    (
        r"SequenceClassification|Reward|Score|Scoring|Rank|CrossEncoder|ValueHead",
        "scores or classifies texts (a classifier, reranker or reward model)",
    ),
    (r"TokenClassification", "labels the tokens of a text (a token classifier)"),
    (r"QuestionAnswering", "marks the answer in a text (extractive question answering)"),
    (r"MultipleChoice|NextSentence", "chooses among texts"),
    (r"TimeSeries|Prediction|Regression|Classification", "reads series of numbers"),
)
"""Patterns of class names, and the tasks of these classes. The first match applies."""
ENCODERS_WITH_HEADS = ("MaskedLM", "PreTraining")


def generates(architecture: str) -> bool:
    """Return whether a class generates text."""
    return architecture in GENERATING or "ForCausalLM" in architecture or "ForConditional" in architecture


def other_task(architecture: str) -> str | None:
    """Return the task of a class as a verb phrase; None if the class generates text or computes vectors."""
    found = re.search(r"For(?=[A-Z])(\w+)$", architecture)
    if found is None or generates(architecture) or found[1].startswith(ENCODERS_WITH_HEADS):
        return None
    known = (what for pattern, what in OTHER_TASKS if re.search(pattern, found[1]))
    return next(known, f"is made for {found[1]}")


def inputs_of(hf_config: Any) -> tuple[str, ...]:
    """Return the input modalities of a config's base model, named as in transformers ("text", "image",
    "audio", …).

    Empty if transformers has no base model for the config.
    """
    if type(hf_config) not in AutoModel._model_mapping:
        return ()
    found = AutoModel._model_mapping[type(hf_config)]
    made = found[0] if isinstance(found, tuple) else found
    given: str | Sequence[str] = made.input_modalities
    return (given,) if isinstance(given, str) else tuple(given)


def unknown_kind(settings: dict[str, Any]) -> str | None:
    """Return an error message about the model type in config.json; None if the type is known.

    A type is known if transformers knows it, or if the model has its own code.

    Args:
        settings: contents of config.json.
    """
    model_type = settings.get("model_type")
    if "_diffusers_version" in settings:
        name = settings.get("_class_name", "a part of a pipeline")
        return f"it is a diffusion model ({name}), which makes images; llmfw serves language models"
    if settings.get("auto_map") or (isinstance(model_type, str) and model_type in CONFIG_MAPPING):
        return None
    if model_type is None:
        return "its config.json has no model_type"
    return (
        f"its model_type is {model_type!r:.80}, which transformers {version('transformers')} does not know; a newer "
        "transformers may"
    )
