"""The kits build a part as a server does."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.testing.declared import built
from llmfw.plugins.store_memory.files import MemoryFiles


class Labeled(MemoryFiles):
    """A store that is given options."""

    class Options(FileStore.Options, frozen=True):
        label: str = "mine"

    def __init__(self, folder: Path | None, options: Options) -> None:
        super().__init__(folder)
        self.label = options.label


def test_a_class_with_options_gets_their_defaults(tmp_path: Path) -> None:
    assert built(Labeled, tmp_path).label == "mine"
    assert built(lambda folder: Labeled(folder, Labeled.Options(label="yours")), tmp_path).label == "yours"
    assert type(built(MemoryFiles, tmp_path)) is MemoryFiles
