"""The kinds of components, and the interface that the classes of each kind implement."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from llmfw.core.base.described import message_of
from llmfw.core.base.suggestion import did_you_mean

INTERFACES: Mapping[str, str] = {
    "attention": "llmfw.core:AttentionBackend",
    "module_pass": "llmfw.core:ModulePass",
    "policy": "llmfw.core:SchedulePolicy",
    "chat_template": "llmfw.core:ChatTemplate",
    "file_store": "llmfw.core:FileStore",
    "batch_store": "llmfw.core:BatchStore",
    "response_store": "llmfw.core:ResponseStore",
    "grammar": "llmfw.core:GrammarBackend",
    "drafter": "llmfw.core:Drafter",
    "tool_parser": "llmfw.core:ToolParser",
    "reasoning_parser": "llmfw.core:ReasoningParser",
    "model": "llmfw.core:ModelSource",
    "observer": "llmfw.core:RequestObserver",
    "middleware": "llmfw.core:HTTPMiddleware",
    "authenticator": "llmfw.core:Authenticator",
    "request_field": "llmfw.core:RequestField",
    "eviction": "llmfw.core:EvictionRule",
    "logits_processor": "llmfw.core:LogitsProcessor",
    "weight_loader": "llmfw.core:WeightLoader",
    "quantization_scheme": "llmfw.core:QuantizationScheme",
    "quantized_format": "llmfw.core:QuantizedFormat",
    "model_adapter": "llmfw.core:ModelAdapter",
    "media_processor": "llmfw.core:MediaProcessor",
    "token_sampler": "llmfw.core:TokenSampler",
    "router": "llmfw.core:Router",
    "adapter_source": "llmfw.core:AdapterSource",
}
"""Kind of component → the interface that its classes implement."""


SEVERAL = frozenset(
    {"observer", "middleware", "authenticator", "request_field", "logits_processor", "weight_loader"}
)
"""Kinds of which a server uses several components at once, or asks several. Their options are named
"kind.name.key".
"""


def spoken(kind: str) -> str:
    """Return a kind in the words of messages, such as "chat template"."""
    return "eviction rule" if kind == "eviction" else kind.replace("_", " ")


def import_path(path: str) -> Any:
    """Import the object at "package.module:name" and return it.

    Raises:
        AttributeError: a module or class on the path lacks the name; the message suggests one that is similar.
    """
    module, _, attributes = path.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            known = vars(found) if isinstance(found, type | ModuleType) else ()
            raise AttributeError(f"{message_of(error)}{did_you_mean(attribute, known)}") from error
    return found
