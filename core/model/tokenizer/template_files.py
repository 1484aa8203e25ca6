"""Finds the chat template among a model's files.

If a model has several named templates, `tool_use` renders chats with tools and `default` renders other chats,
as in transformers' `get_chat_template`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import ModelError

from ..files.small_files import read_json, read_text

logger = logging.getLogger(__name__)

ADDITIONAL = "additional_chat_templates"
"""Folder of named templates next to `chat_template.jinja`, each in a file NAME.jinja."""


def find_chat_template(folder: Path, config: Mapping[str, Any]) -> tuple[str, Path]:
    """Return the source of the model's chat template ("" if there is none), and the file that it was read
    from.

    Args:
        folder: folder of the model's files.
        config: content of `tokenizer_config.json`.

    Raises:
        ModelError: a template cannot be read, has no name in a list, or is not text.
    """
    path = folder / "chat_template.jinja"
    if os.path.lexists(path):
        return _combined({"default": read_text(path), **_additional(folder)}, path), path
    path = folder / "chat_template.json"
    template = read_json(path).get("chat_template")
    if not template:
        path, template = folder / "tokenizer_config.json", config.get("chat_template")
    if isinstance(template, list | dict):
        return _combined(_named(template, path), path), path
    if not isinstance(template, str | None):
        raise ModelError(
            f"{path}: chat_template is {template!r:.100}; it must be a text, or a list of named ones"
        )
    return template or "", path


def _named(templates: list[Any] | dict[str, Any], path: Path) -> dict[str, str]:
    """Return templates by name.

    Accepts a list of objects with "name" and "template", or an object with names as keys.
    """
    try:
        pairs = (
            templates.items()
            if isinstance(templates, dict)
            else [(item["name"], item["template"]) for item in templates]
        )
        named = {str(name): template for name, template in pairs}
    except (TypeError, KeyError, IndexError) as error:
        raise ModelError(
            f"{path}: chat_template is {templates!r:.100}; each template of a list needs a name and a template"
        ) from error
    for name, template in named.items():
        if not isinstance(template, str):
            raise ModelError(
                f"{path}: chat_template is {template!r:.100} for {name!r:.60}; it must be a text"
            )
    return named


def _additional(folder: Path) -> dict[str, str]:
    try:
        names = sorted(os.listdir(folder / ADDITIONAL))
    except OSError:
        return {}
    return {
        name.removesuffix(".jinja"): read_text(folder / ADDITIONAL / name)
        for name in names
        if name.endswith(".jinja")
    }


def _combined(named: Mapping[str, str], path: Path) -> str:
    """Combine named templates into one, which uses `tool_use` for chats with tools and `default` for others.

    Returns "" if there is no `default`.
    """
    default, tool_use = named.get("default"), named.get("tool_use")
    if default is None:
        if named:
            logger.warning(
                "%s has chat templates named %s and none named 'default': chats are refused; choose a file by --chat-template",
                *(path, ", ".join(repr(name)[:60] for name in named)),
            )
        return ""
    if tool_use is None:
        return default
    return f"{{% if tools %}}{_protected(tool_use)}{{% else %}}{_protected(default)}{{% endif %}}"


def _protected(source: str) -> str:
    """Protect the white space at both ends of a template's source, so that the source can be put between
    tags.

    Without this, Jinja would drop white space next to the tags, and a newline at the end of the source.
    """
    return "{{ '' }}" + source.removesuffix("\n") + "{{ '' }}"
