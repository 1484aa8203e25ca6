"""The parts that settings stand for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.api.services.components import load_model_components, with_grammar_checker
from llmfw.api.services.model_components import ModelComponents
from llmfw.api.services.stores import Stores, open_stores
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins


def stores_of(**settings: object) -> Stores:
    config = ServerConfig(served_model_name="m", **settings)  # type: ignore[arg-type]

    async def opened() -> Stores:
        stores = await open_stores(config, load_plugins().registry)
        for store in (stores.files, stores.batches, stores.responses):
            await store.close()
        return stores

    return asyncio.run(opened())


def test_stores_are_in_memory_without_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert type(stores_of().responses).__name__ == "MemoryResponses"
    assert "end with the server; --storage DIR keeps them" in caplog.text
    stores_of(storage=str(tmp_path))
    assert (tmp_path / "responses.db").exists()


def test_an_unusable_store_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--storage DIR"):
        stores_of(response_store="sqlite")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used as storage"):
        stores_of(storage=str(tmp_path / "file"))


SHELVES = """
from llmfw.core.interfaces.file_store import FileStore
from llmfw.plugins.store_memory.files import MemoryFiles

class Shelves(MemoryFiles):
    class Options(FileStore.Options, frozen=True):
        shelf: int = 1

    def __init__(self, folder, options):
        super().__init__(folder)
        self.shelf = options.shelf

@hookimpl
def register_file_stores(register):
    register("shelves", __name__ + ":Shelves")
"""


def test_a_store_receives_its_options(
    install_plugin: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    install_plugin("shelves", SHELVES)
    assert stores_of(file_store="shelves").files.shelf == 1  # type: ignore[attr-defined]
    with caplog.at_level("INFO"):
        files = stores_of(file_store="shelves", options={"file_store.shelf": "7"}).files
    assert files.shelf == 7  # type: ignore[attr-defined]
    assert "Files are kept by 'shelves', batches by 'memory', responses by 'memory'" in caplog.text


def test_unknown_store_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="file store 'memory' has no option 'shelf'; it has none"):
        stores_of(options={"file_store.shelf": "7"})


SHOUTS = """
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningParser, ToolParser

class Shouts(ToolParser):
    class Options(ToolParser.Options, frozen=True):
        mark: str = "!"

    def __init__(self, tools, *, options):
        super().__init__(tools)
        self.mark = options.mark

    def feed(self, text): return [ContentDelta(text + self.mark)]
    def finish(self): return []

class Unbuilt(ReasoningParser):
    def __init__(self, *, in_reasoning=False): raise OSError("no disk")
    def feed(self, text): return [ContentDelta(text)]
    def finish(self): return []

class Half(GrammarBackend):
    def __init__(self, tokenizer, vocab_size): ...

@hookimpl
def register_grammar_backends(register):
    register("half", __name__ + ":Half", rank=-1)

@hookimpl
def register_tool_parsers(register):
    register("shouts", __name__ + ":Shouts")

@hookimpl
def register_reasoning_parsers(register):
    register("unbuilt", __name__ + ":Unbuilt")
"""


def components_of(**settings: object) -> ModelComponents:
    """Return what fits the demo model, and a grammar checker, as a server gets them."""
    registry = load_plugins().registry
    engine = EngineConfig(model=resolve_model("demo", registry).path)
    config = ServerConfig(served_model_name="m", **settings)  # type: ignore[arg-type]
    return with_grammar_checker(load_model_components(engine, config, registry), config, registry, 4096)


def test_a_parser_receives_its_options(install_plugin: Callable[..., Path]) -> None:
    install_plugin("shouts", SHOUTS)
    for options, text in (({}, "a!"), ({"tool_parser.mark": "?"}, "a?")):
        parser = components_of(tool_parser="shouts", options=options).tool_parser
        assert parser is not None
        [delta] = parser([]).feed("a")
        assert delta.text == text  # type: ignore[union-attr]
        assert parser.__name__ == "Shouts"


def test_grammar_options_are_checked_during_model_loading() -> None:
    config = ServerConfig(served_model_name="m", options={"grammar.x": "1"})
    with pytest.raises(ConfigError, match="grammar 'llguidance' has no option 'x'"):
        load_model_components(EngineConfig(model="not read"), config, load_plugins().registry)


def test_unbuildable_components_are_reported_at_start(install_plugin: Callable[..., Path]) -> None:
    install_plugin("shouts", SHOUTS)
    with pytest.raises(ConfigError, match=r"grammar 'half' .* lacks compile, fill_masks, which"):
        components_of(grammar="half")
    with pytest.raises(ConfigError, match=r"reasoning parser 'unbuilt' .* cannot be built: OSError: no disk"):
        components_of(reasoning_parser="unbuilt")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"options": {"tool_parser.mark": "?"}},
            "'mark' is given, but no tool parser is chosen; --tool-parser NAME",
        ),
        (
            {"tool_parser": "hermes", "options": {"tool_parser.mark": "?"}},
            "'hermes' has no option 'mark'; it has none",
        ),
        ({"grammar": "none", "options": {"grammar.x": "1"}}, "'x' is given, but there is no grammar backend"),
        ({"options": {"grammar.x": "1"}}, "grammar 'llguidance' has no option 'x'; it has none"),
    ],
)
def test_options_without_a_reader_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        components_of(**settings)
