"""Model sources that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.interfaces.model_source import ModelSource
from llmfw.core.testing import ModelSourceTests
from llmfw.plugins.model_demo.source import DemoModel


@cache
def copied(name: str) -> Path:
    """Return a folder with links to the demo model's files."""
    root = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, root)
    for file in Path(DemoModel().folder()).iterdir():
        (Path(root) / file.name).symlink_to(file)
    return Path(root)


class Changed(DemoModel):
    """A model of which something is different."""

    def change(self, folder: Path) -> None: ...

    def folder(self) -> str:
        folder = copied(type(self).__name__)
        self.change(folder)
        return str(folder)


def rewrite(path: Path, text: str | bytes) -> None:
    """Put a file in the place of a link."""
    path.unlink(missing_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


class AnotherFolderEachCall(DemoModel):
    def folder(self) -> str:
        return "/no/such/folder"


class RelativeFolder(DemoModel):
    def folder(self) -> str:
        import os

        return os.path.relpath(super().folder())


class HasNoWeights(Changed):
    def change(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink(missing_ok=True)


class GitLFSPointer(Changed):
    def change(self, folder: Path) -> None:
        rewrite(folder / "model.safetensors", "version https://git-lfs.github.com/spec/v1\n")


class TruncatedWeights(Changed):
    def change(self, folder: Path) -> None:
        whole = (Path(DemoModel().folder()) / "model.safetensors").read_bytes()
        rewrite(folder / "model.safetensors", whole[:-1000])


class MissingShard(Changed):
    def change(self, folder: Path) -> None:
        index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
        rewrite(folder / "model.safetensors.index.json", json.dumps(index))


class HasNoTokenizer(Changed):
    def change(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink(missing_ok=True)


class WithConfig(DemoModel):
    """A model with another config.json."""

    changes: dict[str, Any]

    def folder(self) -> str:
        folder = copied(type(self).__name__)
        config = json.loads((Path(DemoModel().folder()) / "config.json").read_text())
        rewrite(folder / "config.json", json.dumps(config | self.changes))
        return str(folder)


class UnknownModelType(WithConfig):
    changes = {"model_type": "no_such_model"}  # noqa: RUF012


class NarrowLogits(WithConfig):
    changes = {"vocab_size": 100}  # noqa: RUF012


class UnregisteredParser(DemoModel):
    tool_parser = "hermess"


class TemplateRefuses(Changed):
    def change(self, folder: Path) -> None:
        rewrite(folder / "chat_template.jinja", "{{ raise_exception('no') }}")


class OfKind(ModelSourceTests):
    kind: type[ModelSource]

    @pytest.fixture
    def source(self) -> ModelSource:
        return self.kind()


def test_class(kind: type[ModelSource]) -> Any:
    """Return a test class for a source."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (*DemoModel.__subclasses__(), *Changed.__subclasses__(), *WithConfig.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
