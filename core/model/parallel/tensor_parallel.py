"""Loads a model in shards and connects the shards: what `load_model` does for `--tp`."""

from __future__ import annotations

from typing import Any

from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError

from ..config.layer_types import INDEXED
from ..files.checkpoint import quantization_of
from ..weights.weight_source import WeightSource
from .linears import DividedEmbedding, GatheredLinear, SummedLinear, SummedModule
from .rank_group import RankGroup
from .shard_plan import Join, ShardPlan


class TensorParallel:
    """One rank's part in loading a model.

    Args:
        group: the ranks.
    """

    def __init__(self, group: RankGroup) -> None:
        self.group = group
        self._plan = ShardPlan(group.rank, group.size)

    def sharded(self, source: WeightSource | None) -> WeightSource:
        """Return a source of the rank's part of the weights. None stands for random weights, which are refused."""
        from .sharded_source import ShardedSource

        assert source is not None
        return ShardedSource(source, self._plan)

    def connect(self, module: nn.Module) -> None:
        """Make the loaded shards exchange results where their plan says so."""
        for name, join in self._plan.joins.items():
            owner, _, last = name.rpartition(".")
            parent = module.get_submodule(owner)
            setattr(parent, last, _joined(getattr(parent, last), join, self.group))


def _joined(part: Any, join: Join, group: RankGroup) -> nn.Module:
    if join is Join.LOOK_UP:
        return DividedEmbedding(part, group)
    if join is Join.SUM_OUTPUT:
        return SummedModule(part, group)
    if join is Join.GATHER:
        return GatheredLinear(part, group)
    return SummedLinear(part, group, splits=join is Join.SPLIT)


def check_divisible(config: EngineConfig, device_type: str) -> None:
    """Check that the settings work with `--tp`. Reads no files.

    Raises:
        ConfigError: a setting does not work with several ranks.
    """
    if config.tp == 1:
        return
    refusals = {
        f"--device is {device_type}; ranks compute only on CPUs": device_type != "cpu",
        f"--quantization is {config.quantization}": config.quantization is not None,
        "--load-format is dummy, which reads no weights": config.load_format == "dummy",
        "--adapter or --max-adapters is given, and adapters are not divided": bool(
            config.adapters or config.max_adapters
        ),
        f"--module-passes is {config.module_passes}, and module passes need whole layers": config.module_passes
        not in ("auto", "none"),
        "--record-steps is given, and a replay runs on one rank": config.record_steps is not None,
        f"--replicas is {config.place.count}": config.place.is_replica,
        f"the server has {config.place.count} models": bool(config.place.model),
    }
    for reason, applies in refusals.items():
        if applies:
            raise ConfigError(f"--tp is {config.tp}, and {reason}; leave out one of them")


def check_dividable(hf_config: Any, model: str, size: int, adapter: object) -> None:
    """Check that a model can be divided among ranks, by its config.

    Args:
        adapter: model adapter in use; None: there is none.

    Raises:
        ModelError: the model cannot be divided.
    """
    reason = ""
    if quantization_of(hf_config) is not None:
        reason = "its weights are quantized"
    elif hf_config.get_text_config(decoder=True) is not hf_config:
        reason = f"{hf_config.model_type} has parts for images or sound"
    elif adapter is not None:
        reason = f"{hf_config.model_type} needs a model adapter"
    elif INDEXED & set(getattr(hf_config, "layer_types", None) or ()):
        reason = f"layers of {hf_config.model_type} select tokens"
    if reason:
        raise ModelError(f"model {model!r} cannot be served with --tp {size}: {reason}; leave out --tp")
