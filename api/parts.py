"""The parts that the API process uses, by the names that the user chose."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.chat_template import ChatTemplate
from llmfw.core.errors import ConfigError, UnknownPartError
from llmfw.core.registry import Registry
from llmfw.core.tokenizer import Tokenizer


def build_chat_template(name: str | None, registry: Registry, tokenizer: Tokenizer) -> ChatTemplate:
    """Return the chat template that a user's choice stands for.

    Args:
        name: a registered template, else a file with a Jinja template; None: the model's own.

    Raises:
        ConfigError: it is neither, or the template is broken.
    """
    source, entry_name = tokenizer.chat_template, "jinja"
    if name is not None:
        try:
            entry_name = registry.find("chat_template", name).full_name
        except UnknownPartError as error:
            source = _read_template(name, str(error))
    template: ChatTemplate = registry.find("chat_template", entry_name).load()(
        source, tokenizer.special_tokens
    )
    return template


def _read_template(path: str, unknown: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"chat template {path!r} cannot be read: {error} ({unknown})") from error
