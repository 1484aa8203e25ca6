"""The part of a model that a rank other than 0 computes: its loading, its executor and its steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.step import StepInput
from llmfw.core.model.device.devices import choose_device, use_threads
from llmfw.core.model.models import load_model
from llmfw.core.model.parallel.rank_group import RankGroup
from llmfw.core.plugin.plugins import load_plugins

from ..ranks.rank_channel import DONE
from .built_executor import build_executor
from .capacity import Capacity
from .foundation import Foundation


class RankWorker:
    """Computes one rank's part of each forward pass. Rank 0 plans the passes, and samples.

    Args:
        config: settings of the engine.
        rank: number of the rank, from 1.
        send: sends a message to rank 0.
        rendezvous: path of the file by which the ranks find each other.
    """

    def __init__(
        self, config: EngineConfig, rank: int, send: Callable[[bytes], None], rendezvous: Path
    ) -> None:
        self._config = config
        self._rank = rank
        self._send = send
        self._rendezvous = rendezvous

    def load(self) -> None:
        """Load the rank's part of the model, at the same time as the other ranks.

        Raises:
            LLMFWError: the model cannot be served, or another rank has ended.
        """
        config = self._config
        use_threads(config)
        self._registry = load_plugins(config.disabled_plugins).registry
        self._device = choose_device(config.device, config.place)
        self._send(DONE)  # rank 0 waits for this before it joins, so a rank that cannot start is noticed
        self._group = RankGroup(self._rank, config.tp, self._rendezvous)
        self._send(DONE)  # the file of the rendezvous is no longer needed
        self._model = load_model(config, self._device, self._registry, self._group)

    def build(self, capacity: bytes) -> None:
        """Build the executor.

        Args:
            capacity: rank 0's `Capacity`, as msgpack.

        Raises:
            ComponentError: no attention backend can serve the model.
        """
        decided = msgspec.msgpack.decode(capacity, type=Capacity)
        foundation = Foundation(self._config, self._registry, self._device, self._model, decided, self._group)
        self._executor = build_executor(foundation).executor

    def compute(self, step: StepInput) -> None:
        """Compute this rank's part of a forward pass.

        Raises:
            RankError: another rank has ended.
        """
        self._executor.forward(step)
