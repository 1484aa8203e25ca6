"""Runs slow work of components, such as compiling, while the engine process still imports torch.

The work runs in a thread of the process that starts the engine process. No code waits for the work or relies
on it. If the work fails, it fails again when the component is built, and that error is reported.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.described import described
from llmfw.core.base.errors import ConfigError

from .choice import choose
from .containment import raise_if_process_ends
from .registry import Entry, Registry

logger = logging.getLogger(__name__)


def begin_to_prepare(config: EngineConfig, registry: Registry) -> threading.Thread | None:
    """Start a thread that calls `prepare` of each component that may be chosen.

    Returns the thread, or None if no such component has a `prepare`.
    """
    paths = list(dict.fromkeys(entry.prepare for entry in _may_be_chosen(config, registry) if entry.prepare))
    if not paths:
        return None
    thread = threading.Thread(target=_prepare, args=(paths, config), name="llmfw-prepare", daemon=True)
    thread.start()
    return thread


def _may_be_chosen(config: EngineConfig, registry: Registry) -> Iterator[Entry]:
    choices = (
        ("module_pass", config.module_passes),
        ("attention", config.attention),
        ("attention", config.prefill_attention or "none"),
        ("token_sampler", config.token_sampler),
        ("policy", config.policy),
        ("eviction", config.eviction),
        ("grammar", config.grammar),
        ("drafter", config.drafter),
        ("logits_processor", config.logits_processors),
        ("weight_loader", config.weight_loader),
        ("model_adapter", config.model_adapter),
        ("quantization_scheme", config.quantization or "none"),
    )
    for kind, choice in choices:
        try:
            yield from choose(registry, kind, choice).entries
        except ConfigError:  # the engine reports it
            continue


def _prepare(paths: Sequence[str], config: EngineConfig) -> None:
    for path in paths:
        module, _, name = path.partition(":")
        try:
            function: Callable[[EngineConfig], object] = getattr(importlib.import_module(module), name)
            function(config)
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; the server starts anyway
            raise_if_process_ends(error)
            logger.info("Not prepared: %s: %s", path, described(error))


__all__ = ["begin_to_prepare"]
