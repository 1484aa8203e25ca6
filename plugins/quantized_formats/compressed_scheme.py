"""Reads the schemes of compressed-tensors: the `config_groups` in config.json, each for a group of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import regex

from llmfw.core import ModelError

from .blocks import Block
from .nvfp4 import GROUP
from .rounded_inputs import Activations
from .settings import Settings

PACKED, INTEGERS, FLOATS, NAIVE = "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"
NVFP4 = "nvfp4-pack-quantized"
FORMATS = (PACKED, INTEGERS, FLOATS, NAIVE, NVFP4)
MATCH_S = 1.0
"""Seconds that a regular expression may take for one name. Some take years."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How the weights of some layers are stored.

    Attributes:
        targets: names of layers, "re:" and a regular expression for names, or "Linear" for all.
        bits: number of bits of a code: 4 or 8.
        is_packed: whether codes are packed into words of 32 bits.
        is_float: whether codes are floats of 8 bits, in place of integers.
        is_symmetric: whether there are no zero points.
        strategy: unit that shares a scale: "tensor", "channel" (an output), "group" (of inputs) or "block".
        group_size: number of inputs in a group; -1 with other strategies.
        block: size of a block; None with other strategies.
        has_act_order: whether inputs are assigned to groups in any order.
        activations: rounding of the layer's inputs; None: inputs are not rounded.
        is_nvfp4: whether weights, and inputs if `activations` is given, are in NVFP4.
    """

    targets: tuple[str, ...]
    bits: int
    is_packed: bool
    is_float: bool
    is_symmetric: bool
    strategy: str
    group_size: int
    block: Block | None
    has_act_order: bool
    activations: Activations | None
    is_nvfp4: bool = False

    def names(self, layer: str) -> bool:
        """Return whether a target is the layer's name, or a regular expression that matches this name.

        Raises:
            ModelError: matching an expression takes too long.
        """
        return any(
            _matches(target[3:], layer) if target.startswith("re:") else target == layer
            for target in self.targets
        )


def _matches(expression: str, layer: str) -> bool:
    try:
        return regex.match(expression, layer, timeout=MATCH_S) is not None
    except TimeoutError:
        raise ModelError(
            f"quantization_config: the target {expression!r:.80} takes more than {MATCH_S:g} s for the name {layer!r:.80}; "
            "write a simpler one"
        ) from None


def read_scheme(name: str, group: Any, default_format: Any) -> Scheme:
    """Return a scheme.

    Args:
        name: name of the group.
        group: the group's value in config.json.
        default_format: format of groups that do not name a format.

    Raises:
        ModelError: llmfw does not support the scheme.
    """
    where = f"quantization_config.config_groups.{name}"
    if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
        raise ModelError(f"{where} has no weights in config.json; take another checkpoint of the model")
    outer = Settings({"format": default_format} | {k: v for k, v in group.items() if v is not None}, where)
    outer.refuse("output_activations")
    stored = outer.one_of("format", FORMATS)
    given = Settings(group["weights"], f"{where}.weights")
    given.one_of("dynamic", (False,), default=False)
    if stored == NVFP4:
        return _nvfp4_scheme(_targets(outer, group), where, given, group.get("input_activations"))
    is_float = given.one_of("type", ("int", "float")) == "float"
    if is_float != (stored == FLOATS) and stored != NAIVE:
        raise given.refusal("type", f"the format {stored} has other codes")
    strategy = given.one_of("strategy", ("tensor", "channel", "group", "block"))
    return Scheme(
        targets=_targets(outer, group),
        bits=given.one_of("num_bits", (8,) if is_float else (4, 8)),
        is_packed=stored == PACKED,
        is_float=is_float,
        is_symmetric=given.one_of("symmetric", (True,) if is_float else (True, False), default=True),
        strategy=strategy,
        group_size=given.group_size() if strategy == "group" else -1,
        block=given.block("block_structure") if strategy == "block" else None,
        has_act_order=given.one_of("actorder", ("group", "dynamic", "weight", "static", False), default=False)
        in ("group", "dynamic"),
        activations=_activations(where, group.get("input_activations")),
    )


def _nvfp4_scheme(targets: tuple[str, ...], where: str, weights: Settings, inputs: Any) -> Scheme:
    """Return the scheme of NVFP4, which has no variants.

    Raises ModelError if the settings differ from NVFP4's.
    """
    activations = None
    if inputs is not None:
        read = _activation_settings(where, inputs)
        read.one_of("dynamic", ("local",))
        _check_nvfp4(read)
        activations = Activations(is_float=True, is_dynamic=True)
    _check_nvfp4(weights)
    weights.refuse("actorder")
    return Scheme(targets, 4, True, True, True, "group", GROUP, None, False, activations, is_nvfp4=True)


def _check_nvfp4(read: Settings) -> None:
    read.one_of("num_bits", (4,))
    read.one_of("type", ("float",))
    read.one_of("symmetric", (True,), default=True)
    read.one_of("strategy", ("tensor_group",))
    read.one_of("group_size", (GROUP,))
    read.one_of("scale_dtype", ("torch.float8_e4m3fn",), default="torch.float8_e4m3fn")


def _activation_settings(where: str, given: Any) -> Settings:
    """Return the settings of the inputs. Raises ModelError if the value is not an object."""
    if not isinstance(given, Mapping):
        raise ModelError(
            f"{where}.input_activations is {given!r:.80} in config.json; it must be null or an object"
        )
    return Settings(given, f"{where}.input_activations")


def _activations(where: str, given: Any) -> Activations | None:
    """Return the rounding of inputs; None: inputs are not rounded.

    Raises:
        ModelError: llmfw does not support the rounding. For example, one scale for all rows of a step would
            make a request's outputs depend on other requests.
    """
    if given is None:
        return None
    read = _activation_settings(where, given)
    read.one_of("num_bits", (8,))
    read.one_of("symmetric", (True,), default=True)
    is_dynamic = read.one_of("dynamic", (True, False), default=False)
    read.one_of("strategy", ("token",) if is_dynamic else ("tensor",))
    read.refuse("scale_dtype", "actorder")
    return Activations(read.one_of("type", ("int", "float")) == "float", is_dynamic)


def _targets(read: Settings, group: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets of a group.

    Raises ModelError if a target is not a text, or not a valid regular expression.
    """
    found = group.get("targets")
    if not isinstance(found, list) or not all(isinstance(target, str) for target in found):
        raise read.refusal("targets", "it must be a list of names")
    for target in found:
        try:
            regex.compile(target.removeprefix("re:"))
        except regex.error as error:
            raise read.refusal("targets", f"{target!r:.80} is not a regular expression") from error
    return tuple(found)
