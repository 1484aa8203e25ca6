"""Conformance tests for implementations of interfaces. Derive from a class, override a fixture, run pytest.

The tests need pytest and hypothesis, which llmfw itself does not require, so no other package of core imports
this one. Each test class is imported on first access, because those for attention backends and module passes
need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

# Without this, pytest would report a failed assertion only as "AssertionError", without its values.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "stores",
            "file_stores",
            "file_listings",
            "file_model",
            "batch_stores",
            "batch_model",
            "policies",
            "policy_load",
            "attention",
            "attention_case",
            "model_adapters",
            "module_pass",
            "module_pass_models",
            "parsing",
            "tool_parsers",
            "reasoning_parsers",
            "chat_sources",
            "chat_templates",
            "grammars",
            "grammar_case",
            "drafters",
            "model_sources",
            "observers",
            "adapter_sources",
            "authenticators",
            "middleware",
            "request_fields",
            "eviction_rules",
            "logits_processors",
            "media_processors",
            "quantization_schemes",
            "quantized_formats",
            "response_stores",
            "response_model",
            "routers",
            "token_samplers",
            "weight_loaders",
        )
    )
)

if TYPE_CHECKING:
    from .adapter_sources import AdapterSourceTests
    from .attention import AttentionBackendTests
    from .authenticators import AuthenticatorTests
    from .batch_stores import BatchStoreTests
    from .chat_templates import ChatTemplateTests
    from .drafters import DrafterTests
    from .eviction_rules import EvictionRuleTests
    from .file_stores import FileStoreTests
    from .grammar_case import GrammarExample
    from .grammars import GrammarBackendTests
    from .logits_processors import LogitsProcessorTests
    from .media_processors import MediaProcessorTests
    from .middleware import HTTPMiddlewareTests
    from .middleware_example import MiddlewareExample
    from .model_adapters import ModelAdapterTests
    from .model_sources import ModelSourceTests
    from .module_pass import ModulePassTests
    from .observers import RequestObserverTests
    from .parsing import ReasoningExample, ToolExample
    from .policies import SchedulePolicyTests
    from .quantization_schemes import QuantizationSchemeTests
    from .quantized_formats import QuantizedExample, QuantizedFormatTests
    from .reasoning_parsers import ReasoningParserTests
    from .request_fields import RequestFieldTests
    from .response_stores import ResponseStoreTests
    from .routers import RouterTests
    from .token_samplers import TokenSamplerTests
    from .tool_parsers import ToolParserTests
    from .weight_loaders import WeightLoaderTests

_HOMES = {
    "AdapterSourceTests": "adapter_sources",
    "AttentionBackendTests": "attention",
    "AuthenticatorTests": "authenticators",
    "BatchStoreTests": "batch_stores",
    "ChatTemplateTests": "chat_templates",
    "DrafterTests": "drafters",
    "EvictionRuleTests": "eviction_rules",
    "FileStoreTests": "file_stores",
    "GrammarBackendTests": "grammars",
    "GrammarExample": "grammar_case",
    "HTTPMiddlewareTests": "middleware",
    "LogitsProcessorTests": "logits_processors",
    "MediaProcessorTests": "media_processors",
    "MiddlewareExample": "middleware_example",
    "ModelAdapterTests": "model_adapters",
    "ModelSourceTests": "model_sources",
    "ModulePassTests": "module_pass",
    "QuantizationSchemeTests": "quantization_schemes",
    "QuantizedExample": "quantized_formats",
    "QuantizedFormatTests": "quantized_formats",
    "ReasoningExample": "parsing",
    "ReasoningParserTests": "reasoning_parsers",
    "RequestFieldTests": "request_fields",
    "RequestObserverTests": "observers",
    "ResponseStoreTests": "response_stores",
    "RouterTests": "routers",
    "SchedulePolicyTests": "policies",
    "TokenSamplerTests": "token_samplers",
    "ToolExample": "parsing",
    "ToolParserTests": "tool_parsers",
    "WeightLoaderTests": "weight_loaders",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


__all__ = [
    "AdapterSourceTests",
    "AttentionBackendTests",
    "AuthenticatorTests",
    "BatchStoreTests",
    "ChatTemplateTests",
    "DrafterTests",
    "EvictionRuleTests",
    "FileStoreTests",
    "GrammarBackendTests",
    "GrammarExample",
    "HTTPMiddlewareTests",
    "LogitsProcessorTests",
    "MediaProcessorTests",
    "MiddlewareExample",
    "ModelAdapterTests",
    "ModelSourceTests",
    "ModulePassTests",
    "QuantizationSchemeTests",
    "QuantizedExample",
    "QuantizedFormatTests",
    "ReasoningExample",
    "ReasoningParserTests",
    "RequestFieldTests",
    "RequestObserverTests",
    "ResponseStoreTests",
    "RouterTests",
    "SchedulePolicyTests",
    "TokenSamplerTests",
    "ToolExample",
    "ToolParserTests",
    "WeightLoaderTests",
]
