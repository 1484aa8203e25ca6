"""A server for the tests of the API, one for each module."""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator

import openai
import pytest

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import LLMFWError
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)) as served:
        yield served


@pytest.fixture(scope="session")
def demo_server() -> Iterator[Served]:
    """Return a server with the real engine and the demo model, called "demo"."""

    from llmfw.core.engine.generation.build import build_generation_engine

    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=16384)
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(config, registry)
    parts = {
        "grammar_checker": GrammarChecker(
            choose_grammar_backend("auto", registry), tokenizer, engine.info.vocab_size
        ),
        "json_tool_parser": registry.find("tool_parser", "json_calls").load(),
    }
    with serving(engine, tokenizer, tokenizer.chat_template, name="demo", **parts) as served:
        yield served


@pytest.fixture(scope="module")
def sdk(server: Served) -> Iterator[openai.OpenAI]:
    with server.openai() as client:
        yield client


@pytest.fixture(scope="session")
def demo() -> Tokenizer:
    """Return the demo model's tokenizer: byte-level BPE with whole words."""
    return load_tokenizer(resolve_model("demo", load_plugins().registry).path)


@pytest.fixture
def counted_here(monkeypatch, tmp_path):
    """Run here what counts a model's weights in a process of its own: to import torch takes that process seconds."""

    def run_here(command, **options):
        said, complaint, program = io.StringIO(), "", tmp_path / "program.py"
        program.write_text(command[2])
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setattr(sys, "argv", command[2:])
            try:
                runpy.run_path(str(program))
            except LLMFWError:
                complaint = traceback.format_exc()
        return subprocess.CompletedProcess(command, int(bool(complaint)), said.getvalue(), complaint)

    monkeypatch.setattr("llmfw.api.commands.plan.programs.subprocess.run", run_here)
