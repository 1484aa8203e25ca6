"""Finds the differences between a loaded model and the files of its weights.

transformers initializes weights that the files lack at random, and ignores tensors that the model lacks; it
only logs both. Further differences, which it does not report: layers hidden by transformers' ignore patterns,
gaps in the numbering of experts, integers stored for a float weight, and two tensors for one weight.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from transformers.modeling_utils import PreTrainedModel

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor

from ..files.checkpoint import expert_gaps, missing_scales
from .weight_source import LoadedWeights

MAX_NAMES = 10
"""Maximum number of names in a message."""
CONSTANTS = re.compile(
    r"(^|\.)(rotary_emb|rotary_pos_emb)\.(inv_freq|cos_cached|sin_cached)$"
    r"|(^|\.)(attn|attention)\.masked_bias$|(^|\.)position_ids$"
)
"""Buffers that older versions of transformers saved, and newer ones compute."""
CACHE_SCALES = re.compile(r"(^|\.)(k|v|kv)_scale$")
"""Scales of stored keys and values, which `kv_scales` reads."""
EXTRA_HEADS = re.compile(r"(^|\.)mtp[^.]*\.")
"""Heads that predict several tokens ahead, which llmfw does not use."""
_LAYER = re.compile(r"\.\d+\.")
EXTRA_LAYER_PARTS = ("eh_proj", "enorm", "hnorm", "shared_head")
"""Modules that only such heads have. DeepSeek V3, GLM 4 MoE and others store such a head as another layer."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between a model and its files. All fields are empty if there are none.

    Attributes:
        missing: names of tensors that the files lack.
        mismatched: descriptions of tensors whose shape or type differs: the name, and both shapes or the
            type in the file.
        surplus: names of tensors that the model lacks.
        note: possible explanation of the differences, or "".
    """

    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    note: str = ""

    def refuse_any(self, path: str) -> None:
        """Refuse the model if there is any difference.

        Raises:
            ModelError: there is a difference; the message lists up to ten tensors and counts the others.
        """
        groups = {"missing": self.missing, "mismatched": self.mismatched, "surplus": self.surplus}
        groups = {title: names for title, names in groups.items() if names}
        if not groups:
            return
        each = MAX_NAMES // len(groups)
        listed = "; ".join(f"{title}: {list_names(names, each)}" for title, names in groups.items())
        note = f" ({self.note})" if self.note else ""
        raise ModelError(
            f"model {path!r} cannot be served: its weights do not fit its config{note}: {listed}"
        )


def differences_of(loaded: LoadedWeights, is_quantized: bool) -> Differences:
    """Return the differences between a loaded model and its files.

    Args:
        is_quantized: whether the files hold quantized weights, which have integers and scales.
    """
    info, stored = loaded.info, loaded.stored
    mismatched = [
        f"{name} is {list(in_file)}, the config says {list(in_model)}"
        for name, in_file, in_model in info["mismatched_keys"]
    ]
    missing, names = set(info["missing_keys"]), _TensorNames(loaded.module, stored)
    if not is_quantized:
        mismatched += names.not_floating()
        missing.update(expert_gaps(stored))
    else:
        missing.update(missing_scales(stored))
    surplus = {name for name in info["unexpected_keys"] if not names.is_by_design(name)}
    if not any(names.layer(name) for name in surplus):
        surplus |= names.surplus_layers()
    return Differences(
        in_order(missing), in_order(mismatched), in_order(surplus | names.doubled()), names.note_on_layers()
    )


class _TensorNames:
    """Compares the names of a model's tensors with the names in its files.

    Args:
        module: loaded module.
        stored: tensors of the files.
    """

    def __init__(self, module: PreTrainedModel, stored: Mapping[str, StoredTensor]) -> None:
        self._prefix = f"{module.base_model_prefix}."
        self._tensors: dict[str, torch.Tensor] = module.state_dict()
        self._counts = _layer_counts(self._tensors)
        self._stored = stored
        self._beyond: dict[tuple[str, int], set[str]] = defaultdict(set)
        for name in stored:
            if layer := self.layer(name):
                self._beyond[layer].add(name)

    def layer(self, name: str) -> tuple[str, int] | None:
        """Return the layer that a stored tensor belongs to, if the model has no such layer; else None.

        A layer is a pair: the name prefix of its list ("model.layers."), and its number in the list.
        """
        for prefix, count in self._counts.items():
            number = self._number(name, prefix)
            if number is not None and number >= count:
                return prefix, number
        return None

    def is_by_design(self, name: str) -> bool:
        """Return whether a stored tensor is of a kind that the model is expected to lack.

        Expected are buffers that transformers computes, scales of the KV cache, and tensors of extra heads.
        """
        if CONSTANTS.search(name) or CACHE_SCALES.search(name) or EXTRA_HEADS.search(name):
            return True
        layer = self.layer(name)
        return layer is not None and _is_extra_head(self._beyond[layer])

    def surplus_layers(self) -> set[str]:
        """Return the names of stored tensors in layers that the model lacks, except those of extra heads."""
        return {name for names in self._beyond.values() if not _is_extra_head(names) for name in names}

    def note_on_layers(self) -> str:
        """Return a text that says how many layers the config and the files have; "" if they agree."""
        for prefix, count in self._counts.items():
            inside = {found for name in self._stored if (found := self._number(name, prefix)) is not None}
            inside -= {number for (_, number), names in self._beyond.items() if _is_extra_head(names)}
            if inside and max(inside) + 1 != count:
                return f"the config has {count} layers, the files {max(inside) + 1}"
        return ""

    def not_floating(self) -> list[str]:
        """Describe the tensors that are integers or complex numbers in the files but floats in the model."""
        return [
            f"{name} is stored as {tensor.dtype}"
            for name, tensor in self._stored.items()
            if (tensor.is_integer or tensor.dtype.upper().startswith("C"))
            and (name.endswith(".weight") or self._is_floating(name))
        ]

    def doubled(self) -> set[str]:
        """Return the names of tensors that are stored twice: with and without the base model's prefix."""
        return {name for name in self._stored if f"{self._prefix}{name}" in self._stored}

    def _is_floating(self, name: str) -> bool:
        known = [self._tensors[form] for form in self._forms(name) if form in self._tensors]
        return any(tensor.is_floating_point() for tensor in known)

    def _number(self, name: str, prefix: str) -> int | None:
        for form in self._forms(name):
            number = form[len(prefix) :].partition(".")[0] if form.startswith(prefix) else ""
            if number.isdigit():
                return int(number)
        return None

    def _forms(self, name: str) -> tuple[str, str, str]:
        return name, f"{self._prefix}{name}", name.removeprefix(self._prefix)


def _layer_counts(names: Iterable[str]) -> dict[str, int]:
    """Return the length of each list of layers, by its name prefix ("model.layers.").

    Leaves out lists within a layer, such as its experts.
    """
    counts: dict[str, int] = {}
    for name in names:
        if found := re.match(r"(.*?\.)?(\d+)\.", name):
            prefix = found[1] or ""
            counts[prefix] = max(counts.get(prefix, 0), int(found[2]) + 1)
    return counts


def _is_extra_head(names: Iterable[str]) -> bool:
    return any(part in name for name in names for part in EXTRA_LAYER_PARTS)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names in natural order: numbers in them are compared by value."""
    return tuple(
        sorted(
            names,
            key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)],
        )
    )


def list_names(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """Return text that lists the first `limit` names, and states the number of the others.

    Names that differ only in the number of the layer count as one.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_LAYER.sub(".*.", name, count=1), []).append(name)
    listed = [_with_others(group) for group in groups.values()]
    rest = sum(len(group) for group in list(groups.values())[limit:])
    return ", ".join(listed[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _with_others(group: list[str]) -> str:
    others = len(group) - 1
    return f"{group[0]} (and in {others} other layer{'s' if others > 1 else ''})" if others else group[0]
