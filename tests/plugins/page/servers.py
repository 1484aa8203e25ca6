"""A server with the demo model and the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.config import EngineConfig
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ...doubles.serving import Served, serving

ROUTES = [("page", f"llmfw.plugins.page.routes:{name}") for name in ("Page", "frames")]


@contextmanager
def demo_server(**settings: Any) -> Iterator[Served]:
    """Serve the demo model until the block ends; `settings` are the engine's."""
    from llmfw.core.engine.generation.build import build_generation_engine

    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(
        model=path, **{"dtype": "float32", "max_total_tokens": 8192, "trace_requests": 100, **settings}
    )
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(config, registry)
    checker = GrammarChecker(choose_grammar_backend("auto", registry), tokenizer, engine.info.vocab_size)
    parts = {
        "grammar_checker": checker,
        "json_tool_parser": registry.find("tool_parser", "json_calls").load(),
    }
    with serving(
        engine, tokenizer, tokenizer.chat_template, name="demo", plugin_routes=ROUTES, **parts
    ) as served:
        yield served
