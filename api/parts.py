"""The parts that the API process uses, by the names that the user chose."""

from __future__ import annotations

import logging
from pathlib import Path

from llmfw.core.chat_template import ChatTemplate
from llmfw.core.config import ServerConfig
from llmfw.core.errors import ConfigError, UnknownPartError
from llmfw.core.registry import Registry
from llmfw.core.storage import ResponseStore
from llmfw.core.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


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


def open_response_store(config: ServerConfig, registry: Registry) -> ResponseStore:
    """Return the response store that a user's settings stand for. May wait for the disk.

    Raises:
        ConfigError: there is none of that name, or it cannot use the folder.
    """
    folder = Path(config.storage).expanduser() if config.storage is not None else None
    name = config.response_store
    if name == "auto":
        name = "memory" if folder is None else "sqlite"
    kind = registry.find("response_store", name).load()
    store: ResponseStore = kind(folder, config.response_store_mb * 2**20)
    if folder is None:
        logger.info(
            "Responses are kept in memory and end with the server; --storage DIR keeps them in a folder"
        )
    else:
        logger.info("Responses are kept by the store %r, folder %s", name, folder)
    return store


def _read_template(path: str, unknown: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"chat template {path!r} cannot be read: {error} ({unknown})") from error
