"""The adapters of older families keep the promises of their interface."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers

from llmfw.core.interfaces.model_adapter import ModelAdapter
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing import ModelAdapterTests

from ...length import also
from .test_families import skip_in_oldest

ENTRIES = [
    entry for entry in load_plugins().registry.entries("model_adapter") if entry.plugin == "adapters_families"
]


class TestBundledAdapters(ModelAdapterTests):
    @pytest.fixture(params=ENTRIES, ids=lambda entry: entry.name)
    def entry(self, request: pytest.FixtureRequest) -> Entry:
        entry: Entry = request.param
        if entry.name == "gpt_neox_japanese" and transformers.__version__.startswith("5.17."):
            pytest.skip("transformers 5.17 itself fails where a part of each head is rotated")
        for model_type in entry.load().model_types:
            skip_in_oldest(model_type)
        return entry

    @pytest.fixture
    def adapter(self, entry: Entry) -> type[ModelAdapter]:
        return entry.load()

    @pytest.fixture(params=[torch.float32, *also([torch.bfloat16, torch.float16])], ids=str)
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        dtype: torch.dtype = request.param
        return dtype


def test_adapters_import_no_families_until_they_adapt(fresh_python: Callable[..., str]) -> None:
    """An engine imports all adapters to find the one for its model."""
    code = "import sys\nfrom llmfw.core.imports.hf import import_modeling\nimport_modeling()\n"
    code += "from llmfw.core.plugin.plugins import load_plugins\nbefore = set(sys.modules)\n"
    code += "[each.load() for each in load_plugins().registry.entries('model_adapter')]\n"
    code += (
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('transformers.models.')))"
    )
    assert fresh_python(code) == "[]\n"
