"""Which parts of a model's weights a rank keeps, and where the ranks exchange results, by transformers' plan.

transformers names a style for modules and parameters of most families, such as "colwise" for
`layers.*.self_attn.q_proj`. This module reads the plan of an empty model and cuts its parameters to the sizes of
one rank. It reads no weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import torch
from torch import nn

from ..failure.refusal import refused
from .cut import Cut


class Join(Enum):
    """How the ranks' results of a module become the whole result.

    GATHER: they are joined. SUM: they are added. SPLIT: as SUM, and the module reads its part of the input.
    SUM_OUTPUT: as SUM, for a module that is not linear. LOOK_UP: each rank has rows of an embedding.
    """

    GATHER = auto()
    SUM = auto()
    SPLIT = auto()
    SUM_OUTPUT = auto()
    LOOK_UP = auto()


@dataclass(frozen=True, slots=True)
class _Style:
    """Meaning of a style of transformers.

    Attributes:
        weight: cut of the weight; None: each rank has the whole weight.
        cuts_bias: whether the bias is cut, too.
        join: how the results become one; None: they stay apart.
        may_stay_whole: whether a weight that cannot be cut may stay whole.
    """

    weight: Cut | None = None
    cuts_bias: bool = False
    join: Join | None = None
    may_stay_whole: bool = False


_ROWS, _COLUMNS = Cut(-2, 0, 1), Cut(-1, 0, 1)
_STYLES = {
    "colwise": _Style(_ROWS, cuts_bias=True),
    "colwise_gather_output": _Style(_ROWS, cuts_bias=True, join=Join.GATHER, may_stay_whole=True),
    "rowwise": _Style(_COLUMNS, join=Join.SUM),
    "rowwise_split_input": _Style(_COLUMNS, join=Join.SPLIT, may_stay_whole=True),
    "packed_colwise": _Style(replace(_ROWS, num_packed=2)),
    "packed_rowwise": _Style(replace(_COLUMNS, num_packed=2)),
    "embedding_rowwise": _Style(_ROWS, join=Join.LOOK_UP, may_stay_whole=True),
    "moe_tp_experts": _Style(join=Join.SUM_OUTPUT),
    # These only change gradients.
    "replicated_with_grad_allreduce": _Style(),
    "mla_kv_a_proj": _Style(),
    "replicate": _Style(),
}
_ALIASES = {"colwise_rep": "colwise_gather_output", "rowwise_rep": "rowwise_split_input"}
"""Names of these styles in earlier versions of transformers."""

_LAYER = re.compile(r"(^|\.)layers\.")
_OF_EXPERT = re.compile(r"\.experts\.\d+\.(?P<name>\w+)\.weight$")
_EXPERTS = {"gate_proj": -2, "up_proj": -2, "w1": -2, "w3": -2, "down_proj": -1, "w2": -1}
"""Dimension in which the files' matrix of one expert is cut. transformers stacks these matrices."""
_RENAMED = {"embed_out.weight": "lm_head.weight"}
"""Names in files that transformers renames. A name that is missing here makes the model be refused at loading: its
tensor then stays whole, and does not fit."""
_KEY_VALUE = ("k_proj", "v_proj")
_ATTENTION = re.compile(r"(^|\.)(self_attn|attention|attn)\.")


class ShardPlan:
    """What one rank keeps of a model, and where it exchanges results with the others.

    Args:
        rank: number of the rank, from 0.
        size: number of ranks.

    Attributes:
        joins: how the results of modules become whole, by module name.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._cuts: dict[str, Cut] = {}
        self._prefix = ""
        self._cuts_experts = False
        self.joins: dict[str, Join] = {}

    def cut_parameters(self, model: Any) -> None:
        """Read the plan of a model without weights, and cut its parameters. Replaces an earlier plan.

        Raises:
            ModelError: transformers has no plan for the model's layers, or the model cannot be cut.
        """
        self._cuts, self.joins = {}, {}
        self._prefix = f"{model.base_model_prefix}."
        self._cuts_experts = False
        styles = {
            name: _ALIASES.get(style, style) for name, style in _named(model, dict(model._tp_plan or {}))
        }
        if not any(_LAYER.search(name) and _STYLES.get(style) != _Style() for name, style in styles.items()):
            raise refused(model, "transformers has no tensor-parallel plan for its layers; leave out --tp")
        if is_tied(model):
            self._keep_tied(model, styles)
        for name, style in styles.items():
            if style not in _STYLES:
                raise refused(
                    model, f"its tensor-parallel plan has the style {style} for {name}; leave out --tp"
                )
            self._plan(model, name, style)
        for name, cut in self._cuts.items():
            _cut_parameter(model, name, cut)

    def cut_of(self, name: str) -> Cut | None:
        """Return the cut of a stored tensor, by its name in the files; None: each rank keeps the whole tensor."""
        name = _RENAMED.get(name, name)
        for form in (name, f"{self._prefix}{name}", name.removeprefix(self._prefix)):
            if form in self._cuts:
                return self._cuts[form]
        found = _OF_EXPERT.search(name)
        if found is None or not self._cuts_experts or found["name"] not in _EXPERTS:
            return None
        return Cut(_EXPERTS[found["name"]], self._rank, self._size)

    def _plan(self, model: Any, name: str, style_name: str) -> None:
        style = _STYLES[style_name]
        try:
            target: object = model.get_submodule(name)
        except AttributeError:  # a parameter, or a submodule that this model does not have
            self._plan_parameter(model, name, style)
            return
        assert isinstance(target, nn.Module)
        weight = getattr(target, "weight", None)
        if style.weight is not None and isinstance(weight, nn.Parameter):
            cut = replace(style.weight, rank=self._rank, size=self._size, num_units=self._units(model, name))
            if cut.ranges(weight.shape) is None:
                if style.may_stay_whole:
                    return
                raise self._uneven(model, name, weight)
            self._cuts[f"{name}.weight"] = cut
            if style.cuts_bias and getattr(target, "bias", None) is not None:
                self._cuts[f"{name}.bias"] = replace(cut, dim=-1)
        if style.join is not None:
            self.joins[name] = style.join

    def _plan_parameter(self, model: Any, name: str, style: _Style) -> None:
        parameter = model.get_parameter(name) if _has_parameter(model, name) else None
        if parameter is None or style.weight is None:
            return
        cut = replace(style.weight, rank=self._rank, size=self._size)
        if parameter.dim() != 3 or cut.ranges(parameter.shape) is None:
            raise self._uneven(model, name, parameter)
        self._cuts[name] = cut
        self._cuts_experts = True

    def _units(self, model: Any, name: str) -> int:
        """Return the number of heads in an attention layer's weight; 0 for other weights."""
        if not _ATTENTION.search(name):
            return 0
        config = model.config
        heads = int(config.num_attention_heads)
        if name.rpartition(".")[2] in _KEY_VALUE:
            return int(getattr(config, "num_key_value_heads", None) or heads)
        return heads

    def _uneven(self, model: Any, name: str, tensor: torch.Tensor) -> Exception:
        config = model.config
        heads = f"{config.num_attention_heads} heads"
        if (keys := getattr(config, "num_key_value_heads", None)) is not None:
            heads += f", {keys} for keys and values"
        return refused(
            model,
            f"--tp is {self._size}, and {name} of {list(tensor.shape)} ({heads}) cannot be divided so; choose another number",
        )

    def _keep_tied(self, model: Any, styles: dict[str, str]) -> None:
        """Treat a head that shares the embedding's weight as the embedding: cut both, or none."""
        embedding, head = (
            _name_of(model, each()) for each in (model.get_input_embeddings, model.get_output_embeddings)
        )
        vocabulary = model.get_input_embeddings().weight.shape[0]
        if styles.get(embedding) != "embedding_rowwise" or head not in styles or vocabulary % self._size:
            styles.pop(embedding, None)
            styles.pop(head, None)


def is_tied(model: Any) -> bool:
    """Return whether a model's head shares the weight of the embedding."""
    config = model.config.get_text_config(decoder=True)
    return bool(getattr(config, "tie_word_embeddings", False)) and model.get_output_embeddings() is not None


def _named(model: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names of modules and parameters that the plan's patterns match, with their style."""
    names = [name for name, _ in model.named_modules()] + [name for name, _ in model.named_parameters()]
    for pattern, style in plan.items():
        matches = re.compile(re.escape(pattern).replace(r"\*", r"\d+")).fullmatch
        for name in names:
            if matches(name):
                yield name, style


def _has_parameter(model: nn.Module, name: str) -> bool:
    owner, _, last = name.rpartition(".")
    try:
        return last in model.get_submodule(owner)._parameters
    except AttributeError:
        return False


def _name_of(model: nn.Module, wanted: nn.Module) -> str:
    return next((name for name, module in model.named_modules() if module is wanted), "")


def _cut_parameter(model: nn.Module, name: str, cut: Cut) -> None:
    """Replace a parameter of an empty model by an empty one of the rank's size."""
    owner_name, _, last = name.rpartition(".")
    owner = model.get_submodule(owner_name)
    whole = owner._parameters[last]
    assert whole is not None
    shape = cut.shape_of(whole.shape)
    empty = torch.empty(shape, dtype=whole.dtype, device=whole.device)
    owner._parameters[last] = nn.Parameter(empty, requires_grad=whole.requires_grad)
    if last == "weight" and isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = shape
    elif last == "weight" and isinstance(owner, nn.Embedding):
        owner.num_embeddings = shape[0]
