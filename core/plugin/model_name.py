"""Resolves the model name that a user gives to a folder or a hub id."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmfw.core.base.described import described
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError, UnknownComponentError
from llmfw.core.base.user_path import user_path
from llmfw.core.interfaces.model_source import ModelSource

from .containment import raise_if_process_ends
from .defaults import default_name
from .model_file import folder_of_file, model_file
from .option_keys import refuse_options
from .registry import Registry

if TYPE_CHECKING:
    from llmfw.core.base.setting_types import OptionValue

_HUB_NAME = r"\w([\w.-]*\w)?"
_HUB_ID = re.compile(rf"(?!.*(--|\.\.))(?!.*\.git$)(?=.{{1,96}}$){_HUB_NAME}(/{_HUB_NAME})?", re.ASCII)
"""Pattern of valid hub ids, as in the hub's own library."""
_WITH_REVISION = re.compile(rf"(?P<id>{_HUB_NAME}/{_HUB_NAME})[@:](?P<revision>[\w./-]+)", re.ASCII)
_URL = re.compile(
    rf"(?:https?|hf)://(?:huggingface\.co/|hf\.co/)?(?P<id>{_HUB_NAME}/{_HUB_NAME})(?:/.*)?", re.ASCII
)
MAX_SHOWN = 100  # characters


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Result of resolving a model's name.

    Attributes:
        path: folder that holds config.json, or a hub id.
        served_name: default for `--served-model-name`: the name that the user gave, without a plugin's name.
            For a folder: the last part of its path, because paths are private. For a file: its name without
            the suffix.
        tool_parser, reasoning_parser: names of the parsers that the model source specifies; None: no parser
            specified.
    """

    path: str
    served_name: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None


def resolve_model(
    name: str, registry: Registry, options: Mapping[str, OptionValue] | None = None
) -> ResolvedModel:
    """Resolve a model's name to a registered model, else to a file or folder, else to a hub id.

    A single-file model, such as model.gguf, gets a folder in the cache (see `WeightLoader.describe`).

    Does not look up a hub id; the code that reads the model's config does.

    Args:
        options: "kind.key" → value; options of the kind "model" are passed to the model source.

    Raises:
        ModelError: the folder has no config.json, or the name is none of the three.
        LostComponentError: the model belongs to a plugin that did not load or was left out (`--no-plugin`).
        ConfigError: several plugins register the name; an option of the source is unknown, missing or has
            the wrong type; or options of the kind "model" are given for a folder or a hub id.
        ComponentError: the registered source cannot be imported or built, or does not return the model's
            folder.
    """
    try:
        entry = registry.find("model", name)
    except UnknownComponentError:
        is_left_out = "/" not in name and any(plugin.is_named_in(name) for plugin in registry.left_out)
        lost = is_left_out or any(plugin.name == name.partition("/")[0] for plugin in registry.broken)
        if lost and not user_path(name, "the model").exists():
            raise
        refuse_options(
            "model", options or {}, f"{name!r} is not a registered model, but a folder or a hub id"
        )
        return _unregistered(name, registry)
    source: ModelSource = entry.build(entry.load(), **entry.built_with(options or {}))
    try:
        path = Path(source.folder())
    except ConfigError:
        raise
    except BaseException as error:  # a plugin may raise anything; it is reported
        raise_if_process_ends(error)
        raise ComponentError(f"{entry} failed in folder(): {described(error)}") from error
    folder = _model_folder(path, str(entry))
    tools, reasoning = (
        name and default_name(registry, kind, name, entry.plugin)
        for kind, name in (("tool_parser", source.tool_parser), ("reasoning_parser", source.reasoning_parser))
    )
    return ResolvedModel(folder, entry.name, tools, reasoning)


def folder_name(path: str) -> str | None:
    """Return the last part of the path of a model's folder; None if the path is not a folder."""
    return os.path.basename(os.path.abspath(path)) if os.path.isdir(path) else None


def _unregistered(name: str, registry: Registry) -> ResolvedModel:
    """Resolve the name of a file, folder or hub id."""
    path = user_path(name, "the model")
    with _model_errors(f"model {_shown(name)}", path):
        path.is_dir()  # raises if a parent folder is not accessible
        file = model_file(path, registry) if name else None
    if file is not None:
        return ResolvedModel(folder_of_file(file, registry), file.stem)
    given = _folder_or_hub_id(name, path, registry)
    return ResolvedModel(given, folder_name(given) or name)


def _folder_or_hub_id(name: str, path: Path, registry: Registry) -> str:
    if name and path.is_dir():
        return _model_folder(path, f"model {name!r}")
    if path.is_file():
        raise ModelError(f"model {name!r} is a file; give the folder that holds config.json and the weights")
    looks_like_path = name.startswith((".", "~", os.sep)) or name.endswith(os.sep)
    if looks_like_path or not _HUB_ID.fullmatch(name):
        known = ", ".join(registry.names("model"))
        raise ModelError(
            f"there is no model folder {_shown(name)}; {_hub_id_advice(name)}registered models: {known}"
        )
    return name


def _shown(name: str) -> str:
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…")


def _cut(path: object) -> str:
    text = str(path)
    return text if len(text) <= 5 * MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _hub_id_advice(name: str) -> str:
    """Return advice for an error message if a name is a hub id with a revision, or a URL; otherwise ""."""
    if found := _WITH_REVISION.fullmatch(name):
        return (
            f"a hub id cannot have a revision: download it (hf download {found['id']} --revision {found['revision']} "
            "--local-dir DIR), and give that folder; "
        )
    if found := _URL.fullmatch(name):
        return f"give the hub id {found['id']!r} in place of the URL; "
    return ""


@contextmanager
def _model_errors(what: str, path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a ModelError with the same reason."""
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"{what}: {_cut(error.filename or path)} cannot be read: {error.strerror or error}"
        ) from error


def _model_folder(path: Path, what: str) -> str:
    with _model_errors(what, path):
        return _checked_folder(path, what)


def _checked_folder(path: Path, what: str) -> str:
    """Return the path of a model's folder as text.

    Raises:
        ModelError: the path is not a folder of a model.
        OSError: the folder cannot be read.
    """
    if not path.is_dir():
        raise ModelError(f"{what} should be in {path}, which is not a folder: install it again")
    config = path / "config.json"
    if not os.path.lexists(config):
        raise ModelError(f"{what}: {_without_config(path)}")
    if stat.S_ISDIR(config.stat().st_mode):  # stat raises for a broken link
        raise ModelError(f"{what}: {config} is a folder; a model folder holds regular files")
    for entry in map(path.joinpath, os.listdir(path)):
        if entry.exists() and not entry.is_file() and not entry.is_dir():
            raise ModelError(
                f"{what}: {entry} is a pipe, socket or device; a model folder holds regular files"
            )
    return str(path)


def _without_config(path: Path) -> str:
    """Return a message about a folder without config.json. Says what the folder holds, and what to do."""
    if (path / "adapter_config.json").is_file():
        return f"{path} holds an adapter without a model; serve its base model with --adapter NAME=PATH"
    if (path / "model_index.json").is_file():
        return f"{path} holds a diffusion pipeline (model_index.json), which makes images; llmfw serves language models"
    if any(path.glob("*.gguf")):
        return (
            f"{path} holds GGUF files, and no plugin that reads them is loaded; enable weights_gguf, or take the safetensors "
            "checkpoint"
        )
    if (path / "params.json").is_file():
        return f"{path} is in the format of its authors' own code (params.json); take or convert to the format of transformers"
    return f"there is no config.json in {path}; a model folder holds that, weights, a tokenizer"
