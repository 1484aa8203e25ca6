"""Recomputes recorded steps, and compares the resulting tokens with the recorded ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch

from llmfw.core.base.adapter_name import split_adapters
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.step_check import StepLimits, check_masks, check_output, check_step
from llmfw.core.model.device.devices import choose_device, on_device
from llmfw.core.model.failure.load_failure import first_line
from llmfw.core.model.models import load_model
from llmfw.core.plugin.registry import Registry
from llmfw.core.step.recording import RecordedStep, RecordingHeader, damaged, read_recording

from .adapters import EngineAdapters
from .built_executor import build_executor
from .capacity import Capacity, missing_memory
from .foundation import Foundation

MAX_ROWS = 1_000_000
"""Maximum number of rows of a page table: no device runs as many sequences at once."""


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
        ConfigError: the recording cannot be read, is damaged, or its model cannot be served here.
    """
    header, steps = read_recording(path)
    config = _config(header, changes)
    capacity = _capacity(path, header, config)
    device = choose_device(config.device)
    with on_device(device):
        model = load_model(config, device, registry)
    if model.vocab_size != header.vocab_size:
        raise ConfigError(
            f"{config.model} has {model.vocab_size} tokens; the recorded model had {header.vocab_size}"
        )
    if capacity.max_model_len > model.context_length:
        raise ConfigError(
            f"{path} has sequences of {capacity.max_model_len} tokens; {config.model} has a context of {model.context_length}"
        )
    num_tokens = capacity.num_pages * config.page_size
    if lack := missing_memory(
        config, model, device, num_tokens, capacity.max_running, capacity.num_snapshots
    ):
        raise ConfigError(f"{path} has a pool of {num_tokens} tokens, {lack}; replay it on a larger device")
    with on_device(device):
        EngineAdapters(model.adapters).load_now(split_adapters(config.adapters))  # in the recorded slots
        executor = build_executor(Foundation(config, registry, device, model, capacity)).executor
    limits = StepLimits(
        num_rows=capacity.max_running,
        num_pages=capacity.num_pages,
        page_size=config.page_size,
        max_len=capacity.max_model_len,
        vocab_size=model.vocab_size,
        num_snapshots=capacity.num_snapshots,
        num_adapters=len(config.adapters),
    )
    with torch.inference_mode(), on_device(device):
        for number, recorded in enumerate(steps, 1):
            try:
                _check(recorded, limits)
                computed = executor.run(recorded.step, recorded.masks)
            except Exception as error:  # a step that passed the checks may still be impossible
                raise damaged(path, number, first_line(error)) from error
            yield ReplayedStep(number, recorded, computed.token_ids)


def _check(recorded: RecordedStep, limits: StepLimits) -> None:
    check_step(recorded.step, limits)
    if recorded.masks is not None:
        check_masks(recorded.masks, recorded.step, limits)
    check_output(recorded.output, recorded.step, limits)


def _capacity(path: Path, header: RecordingHeader, config: EngineConfig) -> Capacity:
    """Return the recorded capacity.

    Raises:
        ConfigError: the capacity cannot be read, or one of its numbers is out of range.
    """
    try:
        capacity = msgspec.convert(header.capacity, Capacity)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is damaged: its capacity cannot be read: {error}") from error
    most = {
        "num_pages": int(np.iinfo(np.int32).max),
        "max_running": MAX_ROWS,
        "max_model_len": capacity.num_pages * config.page_size,
        "prefill_budget": sys.maxsize,
        "num_snapshots": MAX_ROWS,
    }
    for name, limit in most.items():
        least = 0 if name == "num_snapshots" else 1
        if not least <= getattr(capacity, name) <= limit:
            raise ConfigError(
                f"{path} is damaged: its capacity has {name} {getattr(capacity, name)}; it must be {least} to {limit}"
            )
    return capacity


def _config(header: RecordingHeader, changes: dict[str, object]) -> EngineConfig:
    settings = header.config | changes | {"record_steps": None, "record_requests": None, "place": {}}
    try:
        return msgspec.convert(settings, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the settings of llmfw {header.version} do not fit this version: {error}"
        ) from error
