"""Chooses and applies module passes, and checks that the model's results stay the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.plugin.choice import Rejection, choose
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.plugin.torch_state import keeping_torch_state

from ..failure.refusal import refusing
from ..probe.probe import probe
from ..probe.state_probe import state_layers
from ..trial.packed import packed_logits
from ..trial.relative_distance import relative_distance

logger = logging.getLogger(__name__)

TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.1}
"""Maximum change of a token's logits, relative to their norm. Rounding differences grow through the
layers."""


@dataclass(frozen=True, slots=True)
class ChosenPass:
    """A module pass that supports the device and dtype, and its registry entry."""

    entry: Entry
    module_pass: ModulePass

    def rebuilt(self) -> ChosenPass:
        """Return a copy with a new pass object, which has not been applied to a model yet."""
        return ChosenPass(self.entry, self.entry.build(type(self.module_pass)))


def choose_passes(
    names: str, registry: Registry, device: torch.device, dtype: torch.dtype
) -> list[ChosenPass]:
    """Return the passes to apply, by descending rank.

    Args:
        names: "auto" (all passes that support the device and dtype), "none", or names separated by commas.

    Raises:
        ConfigError: no pass has a given name, or a name is given twice.
        ComponentError: a named pass cannot be used; the message gives the reason.
    """
    choice = choose(registry, "module_pass", names, device.type)
    chosen = []
    unsupported: dict[str, list[str]] = {}  # reason → names
    elsewhere: list[str] = []
    for entry in sorted(choice.entries, key=lambda entry: -entry.rank):
        found = choice.attempt(entry, partial(_build, entry, device, dtype))
        if not isinstance(found, Rejection):
            chosen.append(ChosenPass(entry, found))
        elif not choice.is_auto:
            raise found.error or ComponentError(f"{entry} cannot be applied: {found.reason}")
        elif found.is_for_other_device:
            elsewhere.append(f"{entry.name} ({found.reason})")
        elif found.error:
            logger.warning("Module pass %s is passed over: %s", entry.name, found.reason)
        else:
            unsupported.setdefault(found.reason, []).append(entry.name)
    if unsupported:
        listed = (f"{', '.join(each)} ({reason})" for reason, each in unsupported.items())
        logger.info("Module passes that do not apply: %s", "; ".join(listed))
    if elsewhere:
        logger.debug("Module passes for other devices than %s: %s", device.type, ", ".join(elsewhere))
    return chosen


def _build(
    entry: Entry, device: torch.device, dtype: torch.dtype, kind: type[ModulePass]
) -> ModulePass | str:
    """Build a pass and return it, or return the reason why it does not support the device and dtype."""
    with keeping_torch_state(lambda: f"asking {entry} whether it can be used"):
        reason = kind.unsupported(str(device), dtype)
    return entry.build(kind) if reason is None else reason


class SpoiledModelError(Exception):
    """A module pass chosen by "auto" failed and left the model changed, so that it must be loaded again.

    Args:
        chosen: the failed pass.
    """

    def __init__(self, chosen: ChosenPass) -> None:
        super().__init__(chosen.entry.name)
        self.chosen = chosen


def apply_passes(
    chosen: Sequence[ChosenPass],
    model: nn.Module,
    layers: Sequence[LayerSpec],
    vocab_size: int,
    *,
    is_auto: bool = False,
) -> list[ChosenPass]:
    """Apply passes in order; return the passes that changed the model.

    After each pass, the model must call attention as before, and compute nearly the same logits.

    Args:
        layers: attention layers before any pass.
        vocab_size: upper bound of the token ids to test with.
        is_auto: whether the passes were chosen by "auto". If so, a pass that fails is skipped, and the reason
            is logged.

    Raises:
        ComponentError: a named pass raised an exception, or changed the model's results.
        SpoiledModelError: a pass chosen by "auto" failed in this way, and left the model changed.
    """
    if not chosen:
        return []
    with refusing(model, "running it on several sequences"):
        first = logits = packed_logits(model, vocab_size)
    applied = []
    for each in chosen:
        before = _Snapshot(model, logits)
        try:
            count, logits = _apply(each, model, layers, first, vocab_size)
        except ComponentError as error:
            if not is_auto:
                raise
            logger.warning("Module pass %s is passed over: %s", each.entry.name, error)
            if not before.is_of(model, vocab_size):
                raise SpoiledModelError(each) from error
            continue
        if count:
            applied.append(each)
    return applied


def _apply(
    chosen: ChosenPass, model: nn.Module, layers: Sequence[LayerSpec], first: torch.Tensor, vocab_size: int
) -> tuple[int, torch.Tensor]:
    """Apply a pass; return the number of changed modules, and the model's logits after it.

    Args:
        layers: attention layers before any pass.
        first: logits before any pass.

    Raises:
        ComponentError: the pass raised an exception, or the changed model cannot be run or computes other
            results.
    """
    with _pass_errors(chosen):
        with keeping_torch_state(lambda: f"applying {chosen.entry}"):
            count = chosen.module_pass.apply(model)
        if type(count) is not int or count < 0:
            raise WrongReturnError(f"apply() returned {count!r:.80} in place of a number of modules")
        after = packed_logits(model, vocab_size)
        found = probe(model, len(layers), vocab_size, may_lack_masks=True, states=state_layers(model))
        is_same = found == list(layers)
    moved = relative_distance(first, after)
    logger.debug("Module pass %s: modules=%d, logits moved by %.1e", chosen.entry.name, count, moved)
    if not is_same:
        raise ComponentError(
            f"after {chosen.entry} the model's layers call attention in another way; {_ADVICE}"
        )
    if not moved <= TOLERANCES[next(model.parameters()).dtype]:
        raise ComponentError(f"after {chosen.entry} the model says something else ({moved:.1g}); {_ADVICE}")
    return count, after


@contextmanager
def _pass_errors(chosen: ChosenPass) -> Iterator[None]:
    """Convert any exception in the block to a ComponentError that names the pass.

    Modules that the pass inserted may raise exceptions, too.
    """
    try:
        yield
    except BaseException as error:  # a foreign component may raise anything
        raise_if_process_ends(error)
        logger.debug("%s failed", chosen.entry, exc_info=True)
        text = " ".join(str(error).split())
        raise ComponentError(f"{chosen.entry} failed: {type(error).__name__}: {text}; {_ADVICE}") from error


class _Snapshot:
    """State of a model before a pass. Shows whether a failed pass has changed the model.

    Modules and parameters are compared by identity. Changed values of parameters are found by comparing
    logits bit by bit.
    """

    def __init__(self, model: nn.Module, logits: torch.Tensor) -> None:
        self._members = _members(model)
        self._logits = logits

    def is_of(self, model: nn.Module, vocab_size: int) -> bool:
        if _members(model) != self._members:
            return False
        try:
            return torch.equal(packed_logits(model, vocab_size), self._logits)
        except Exception:  # noqa: BLE001 - the pass has broken the model
            return False


def _members(model: nn.Module) -> dict[str, int]:
    """Return the `id()` of each module, of its `forward` override, and of each weight, by name."""
    members = {name: id(module) for name, module in model.named_modules()}
    members |= {f"{name}()": id(vars(module).get("forward")) for name, module in model.named_modules()}
    members |= {name: id(weight) for name, weight in model.named_parameters(remove_duplicate=False)}
    return members


_ADVICE = "leave it out with --module-passes"
