"""Recomputes recorded steps, and compares the resulting tokens with the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.model.devices import choose_device
from llmfw.core.model.models import load_model
from llmfw.core.plugin.registry import Registry
from llmfw.core.step.recording import RecordedStep, RecordingHeader, read_recording

from .build import build_executor
from .capacity import Capacity


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A recorded step and its recomputed tokens.

    Attributes:
        number: number of the step, from 1.
        recorded: recorded input and output.
        token_ids: recomputed tokens: [S].
    """

    number: int
    recorded: RecordedStep
    token_ids: Sequence[int]

    @property
    def differences(self) -> list[tuple[int, int, int]]:
        """Row, recorded token and new token of each token that differs."""
        rows = self.recorded.step.sampled_rows.tolist()
        pairs = zip(rows, self.recorded.output.token_ids, self.token_ids, strict=True)
        return [(row, before, now) for row, before, now in pairs if before != now]


def replay(path: Path, registry: Registry, **changes: object) -> Iterator[ReplayedStep]:
    """Recompute the steps of a recording, with the recorded settings and `changes`, and yield them.

    Args:
        path: path of the recording.
        registry: registry of the components that the settings name.
        changes: settings to change, by field of `EngineConfig`, such as `attention="torch"`.

    Raises:
        ConfigError: the recording cannot be read, or its model cannot be served here.
    """
    header, steps = read_recording(path)
    config = _config(header, changes)
    device = choose_device(config.device)
    model = load_model(config, device, registry)
    if model.vocab_size != header.vocab_size:
        raise ConfigError(
            f"{config.model} has {model.vocab_size} tokens; the recorded model had {header.vocab_size}"
        )
    capacity = msgspec.convert(header.capacity, Capacity)
    executor = build_executor(config, registry, model, capacity, device).executor
    with torch.inference_mode():
        for number, recorded in enumerate(steps, 1):
            yield ReplayedStep(number, recorded, executor.run(recorded.step, recorded.masks).token_ids)


def _config(header: RecordingHeader, changes: dict[str, object]) -> EngineConfig:
    settings = header.config | changes | {"record_steps": None, "record_requests": None}
    try:
        return msgspec.convert(settings, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the settings of llmfw {header.version} do not fit this version: {error}"
        ) from error
