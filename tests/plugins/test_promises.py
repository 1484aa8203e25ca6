"""Bundled parts keep the promises of their interfaces: every one that is registered, of the kinds with one test class
for all. (Stores of files and batches, attention backends, module passes, policies and parsers have files of their own.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.interfaces.model_source import ModelSource
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing import ChatTemplateTests, GrammarBackendTests, ModelSourceTests, ResponseStoreTests

from ..length import of_length

MOST_STEPS = 30_000_000
"""What the kit's costly sources take at least."""


def bundled(kind: str) -> list[Entry]:
    return [entry for entry in load_plugins().registry.entries(kind) if entry.distribution == DISTRIBUTION]


class TestBundledChatTemplates(ChatTemplateTests):
    @pytest.fixture(params=bundled("chat_template"), ids=lambda entry: entry.name)
    def template(self, request: pytest.FixtureRequest) -> type[ChatTemplate]:
        kind: type[ChatTemplate] = request.param.load()
        return kind

    @pytest.fixture
    def early(self, template: type[ChatTemplate]) -> type[ChatTemplate]:
        """The template; in short length it stops a rendering after a tenth of the steps, and the same code counts them."""
        if (limits := getattr(template, "limits", None)) is None:
            return template
        assert limits.steps <= MOST_STEPS
        steps = of_length(limits.steps // 10, limits.steps)
        return type(template.__name__, (template,), {"limits": msgspec.structs.replace(limits, steps=steps)})

    @pytest.mark.usefixtures("of_jinja")
    def test_a_costly_source_is_stopped(
        self, early: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        super().test_a_costly_source_is_stopped(early, special_tokens)


class TestBundledGrammarBackends(GrammarBackendTests):
    @pytest.fixture(params=bundled("grammar"), ids=lambda entry: entry.name)
    def backend(self, request: pytest.FixtureRequest) -> type[GrammarBackend]:
        kind: type[GrammarBackend] = request.param.load()
        return kind


class TestBundledModels(ModelSourceTests):
    @pytest.fixture(params=bundled("model"), ids=lambda entry: entry.name)
    def source(self, request: pytest.FixtureRequest) -> ModelSource:
        source: ModelSource = request.param.load()()
        return source


class TestBundledResponseStores(ResponseStoreTests):
    @pytest.fixture(params=bundled("response_store"), ids=lambda entry: entry.name)
    def open_store(self, request: pytest.FixtureRequest) -> type[ResponseStore]:
        return reading(request.param.load())


def reading(kind: Any) -> type[ResponseStore]:
    """Return a store that reads the JSON it is given, as one may that keeps it as such: the tests put nothing else."""

    class Reading(kind):  # type: ignore[misc]
        async def put(self, record: ResponseRecord) -> None:
            assert isinstance(json.loads(record.response), dict)
            assert isinstance(json.loads(record.input), list)
            await super().put(record)

    return Reading


def test_bundled_components_declare_their_capabilities() -> None:
    found = {
        (entry.kind, entry.name, name)
        for kind in ("chat_template", "file_store", "batch_store", "response_store")
        for entry in bundled(kind)
        for name, value in getattr(entry.load(), "conformance", {}).items()
        if value
    }
    stores = {(f"{kind}_store", "sqlite", "survives_reopening") for kind in ("file", "batch", "response")}
    beginnings = {"jinja", "chatml", "llama-3", "gemma", "deepseek"}
    assert found == stores | {
        ("chat_template", "jinja", "renders_jinja"),
        *(("chat_template", name, "has_tools") for name in ("jinja", "chatml", "llama-3", "mistral")),
        *(("chat_template", name, "has_generation_prompt") for name in beginnings),
    }
