"""Which module passes are applied to a loaded model, and whether it still says the same afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ..errors import ConfigError, PartError
from ..module_pass import ModulePass
from ..registry import Entry, Registry
from .probe import packed_logits, probe

logger = logging.getLogger(__name__)

TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.1}
"""How far a token's logits may move, relative to their norm: rounding, and what layers make of it."""


@dataclass(frozen=True, slots=True)
class ChosenPass:
    """A pass that can work on the model's device, and the part that it is."""

    entry: Entry
    module_pass: ModulePass


def choose_passes(
    names: str, registry: Registry, device: torch.device, dtype: torch.dtype
) -> list[ChosenPass]:
    """Return the passes to apply, those of the largest rank first.

    Args:
        names: "auto" (all that can work here), "none", or names separated by commas.

    Raises:
        ConfigError: a name is not that of a pass, or is given twice.
        PartError: one that was named cannot work here; with the reason.
    """
    if names == "none":
        return []
    entries = registry.entries("module_pass") if names == "auto" else _named(names, registry)
    chosen = []
    for entry in entries:
        missing = entry.missing()
        if missing and names == "auto":
            logger.info("Module pass %s is passed over: it needs %s", entry.name, ", ".join(missing))
            continue
        found = _build(entry, device, dtype)
        if not isinstance(found, str | PartError):
            chosen.append(ChosenPass(entry, found))
        elif names == "auto":
            level = logging.WARNING if isinstance(found, PartError) else logging.INFO
            logger.log(level, "Module pass %s is passed over: %s", entry.name, found)
        else:
            raise found if isinstance(found, PartError) else PartError(f"{entry} cannot be applied: {found}")
    return chosen


def _build(entry: Entry, device: torch.device, dtype: torch.dtype) -> ModulePass | str | PartError:
    """Return a pass, or why there is none: what it says, or what is broken."""
    try:
        kind: type[ModulePass] = entry.load()
        reason = kind.unsupported(str(device), dtype)
        return entry.build(kind) if reason is None else reason
    except PartError as error:
        return error
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a foreign class raises is the cause to report
        return PartError(f"{entry} failed: {type(error).__name__}: {error}")


def apply_passes(
    chosen: Sequence[ChosenPass], model: nn.Module, num_layers: int, vocab_size: int
) -> list[ChosenPass]:
    """Apply passes in their order; return those that changed something.

    The model is probed first: one that cannot be served is refused as it came. After each pass it has to give nearly
    the same logits.

    Raises:
        ModelError: the model cannot be served.
        PartError: a pass raised, or the model says something else after it.
    """
    if not chosen:
        return []
    probe(model, num_layers, vocab_size)
    logits = packed_logits(model, vocab_size)
    applied = []
    for each in chosen:
        try:
            count = each.module_pass.apply(model)
            after = packed_logits(model, vocab_size)
        except Exception as error:  # whatever a foreign part raises is the cause to report
            raise PartError(f"{each.entry} failed: {type(error).__name__}: {error}; {_ADVICE}") from error
        moved = relative_distance(logits, after)
        logger.info("Module pass %s: modules=%d, logits moved by %.1e", each.entry.name, count, moved)
        if not moved <= TOLERANCES[next(model.parameters()).dtype]:
            raise PartError(f"after {each.entry} the model says something else ({moved:.1g}); {_ADVICE}")
        if count:
            applied.append(each)
    return applied


_ADVICE = "leave it out with --module-passes"


def relative_distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return how far the logits [T, vocab] of most tokens have moved at the least, relative to their norm.

    The median over the tokens: one whose experts were nearly a draw may be routed to others by a rounding.
    """
    before, after = before.double(), after.double()
    return float(((after - before).norm(dim=-1) / before.norm(dim=-1)).median())


def _named(names: str, registry: Registry) -> list[Entry]:
    entries = [registry.find("module_pass", name.strip()) for name in names.split(",")]
    for entry in entries:
        if entries.count(entry) > 1:
            raise ConfigError(f"module pass {entry.name!r} is named twice in {names!r}")
    return sorted(entries, key=lambda entry: -entry.rank)
