"""Chooses the component that draws tokens."""

from __future__ import annotations

import logging
from functools import partial

import torch

from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.token_sampler import TokenSampler
from llmfw.core.plugin.choice import Created, Rejection, choose
from llmfw.core.plugin.registry import Entry, Registry

logger = logging.getLogger(__name__)


def choose_token_sampler(
    setting: str, registry: Registry, vocab_size: int, device: torch.device, *, may_wait: bool
) -> Created[TokenSampler]:
    """Return the token sampler of a setting: the named one, or the best one that works on the device.

    Args:
        setting: value of `--token-sampler`.
        may_wait: see `TokenSampler`.

    Raises:
        ComponentError: the named token sampler cannot be used, or none can; the message gives the reasons.
    """
    choice = choose(registry, "token_sampler", setting, device.type)
    reasons: list[str] = []
    for entry in choice.entries:
        found = choice.attempt(entry, partial(_build, entry, vocab_size, device, may_wait))
        if not isinstance(found, Rejection):
            passed_over = f" ({'; '.join(reasons)})" if reasons else ""
            others = [other for other in registry.entries("token_sampler") if other.is_for(device.type)]
            level = logging.INFO if len(others) > 1 else logging.DEBUG
            logger.log(level, "Token sampler: %s%s", entry.name, passed_over)
            return Created(entry, found)
        if found.error is not None and choice.is_auto:
            logger.warning("Token sampler %s is skipped: %s", entry.name, found.reason)
        if not found.is_for_other_device:
            reasons.append(f"{entry.name}: {found.reason}")
    listed = "; ".join(reasons) or "no plugin brings one"
    raise ComponentError(f"no token sampler can sample from {vocab_size:,} tokens on {device}: {listed}")


def _build(
    entry: Entry, vocab_size: int, device: torch.device, may_wait: bool, kind: type[TokenSampler]
) -> TokenSampler | str:
    """Build a token sampler of a class and return it, or return the reason why the class cannot be used."""
    reason = kind.unsupported(str(device), vocab_size)
    if reason is not None:
        return reason
    return entry.build(kind, vocab_size, device, may_wait=may_wait)
