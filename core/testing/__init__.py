"""Tests that hold a part to the promises of its interface: derive from a class, say how to open the part, run pytest.

They need pytest and hypothesis, which llmfw itself does without: nothing else of core imports this. Those of attention
backends and module passes need torch, and are imported from `llmfw.core.testing.attention` and `….module_pass`.
"""

from __future__ import annotations

import pytest

# Without this, pytest would say of a promise that was not kept no more than "AssertionError".
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "stores",
            "file_stores",
            "file_model",
            "batch_stores",
            "batch_model",
            "policies",
            "policy_load",
            "attention",
            "attention_case",
            "module_pass",
            "module_pass_models",
            "parsing",
            "tool_parsers",
            "reasoning_parsers",
            "chat_templates",
            "grammars",
            "grammar_case",
            "model_sources",
            "response_stores",
            "response_model",
        )
    )
)

from .batch_stores import BatchStoreTests
from .chat_templates import ChatTemplateTests
from .file_stores import FileStoreTests
from .grammar_case import GrammarExample
from .grammars import GrammarBackendTests
from .model_sources import ModelSourceTests
from .parsing import ReasoningExample, ToolExample
from .policies import SchedulePolicyTests
from .reasoning_parsers import ReasoningParserTests
from .response_stores import ResponseStoreTests
from .tool_parsers import ToolParserTests

__all__ = [
    "BatchStoreTests",
    "ChatTemplateTests",
    "FileStoreTests",
    "GrammarBackendTests",
    "GrammarExample",
    "ModelSourceTests",
    "ReasoningExample",
    "ReasoningParserTests",
    "ResponseStoreTests",
    "SchedulePolicyTests",
    "ToolExample",
    "ToolParserTests",
]
