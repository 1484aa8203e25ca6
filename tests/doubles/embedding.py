"""A real embedding model with other settings in its files, served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.registry import Registry

from .serving import Served, serving


@contextmanager
def serving_with(
    folder: str,
    copy: Path,
    template: str = "",
    plugin_routes: Sequence[tuple[str, str]] = (),
    **settings: Any,
) -> Iterator[Served]:
    """Serve a model until the block ends.

    Args:
        folder: the model's folder.
        copy: empty folder for its files, which become links.
        template: chat template.
        plugin_routes: as in `serving`.
        settings: fields of config.json that differ.
    """
    for path in Path(folder).iterdir():
        (copy / path.name).symlink_to(path)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config | settings))
    engine = EmbeddingEngine.build(EngineConfig(model=str(copy), device="cpu", dtype="float32"), Registry())
    with serving(engine, load_tokenizer(str(copy)), template, plugin_routes=plugin_routes) as served:
        yield served
