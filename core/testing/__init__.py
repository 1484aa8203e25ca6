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
        )
    )
)

from .batch_stores import BatchStoreTests
from .file_stores import FileStoreTests
from .policies import SchedulePolicyTests

__all__ = ["BatchStoreTests", "FileStoreTests", "SchedulePolicyTests"]
