"""Records all inputs and outputs of an executor in a file, so that the steps can be replayed.

    header        settings and capacity, as msgpack
    each step     StepInput, TokenMasks (empty if there are none), StepOutput

The header and each of a step's three messages are preceded by their length (4 bytes, little-endian). The file
contains the token ids of prompts and outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from llmfw.core.base.about import version
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.step import StepInput, StepOutput, TokenMasks, decode, encode

from .executor import Executor, ForwardPass
from .pending import PendingOutput

FORMAT = 1
LENGTH = struct.Struct("<I")


class RecordingHeader(msgspec.Struct, frozen=True):
    """Header of a recording: the settings for building an executor that replays it.

    Attributes:
        format: version of the file format.
        version: version of llmfw that wrote the file.
        config: engine settings, by field of `EngineConfig`.
        capacity: capacity of the device, by field of `Capacity`.
        vocab_size: width of the logits.
    """

    format: int
    version: str
    config: dict[str, Any]
    capacity: dict[str, Any]
    vocab_size: int

    @classmethod
    def of(cls, config: EngineConfig, capacity: dict[str, Any], vocab_size: int) -> RecordingHeader:
        """Return a header with the current format and llmfw version."""
        return cls(FORMAT, version(), msgspec.to_builtins(config), capacity, vocab_size)


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Input, masks and output of one step."""

    step: StepInput
    masks: TokenMasks | None
    output: StepOutput


class StepWriter:
    """Writes a recording to a file.

    Args:
        path: path of a file that does not exist yet.

    Raises:
        ConfigError: the file cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            open(path, "xb").close()
        except OSError as error:
            raise ConfigError(f"--record-steps {path} cannot be made: {error.strerror}") from error

    def start(self, header: RecordingHeader) -> None:
        """Write the header to the file."""
        self._write(msgspec.msgpack.encode(header))

    def add(self, recorded: RecordedStep) -> None:
        """Append a step to the file."""
        masks = b"" if recorded.masks is None else encode(recorded.masks)
        self._write(encode(recorded.step), masks, encode(recorded.output))

    def _write(self, *parts: bytes) -> None:
        """Append messages with their lengths in one call, so that a crash can truncate only the last step."""
        with open(self._path, "ab") as file:
            file.write(b"".join(LENGTH.pack(len(part)) + part for part in parts))


def read_recording(path: Path) -> tuple[RecordingHeader, Iterator[RecordedStep]]:
    """Return the header and the steps of a recording. If the last step is incomplete, it is omitted.

    Raises:
        ConfigError: the file cannot be read, or is not a recording in this format.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        header = msgspec.msgpack.decode(_read(file) or b"", type=RecordingHeader)
    except (msgspec.DecodeError, ValueError) as error:
        file.close()
        raise ConfigError(f"{path} is no recording of steps: {error}. `--record-steps` writes one") from error
    if header.format != FORMAT:
        file.close()
        raise ConfigError(f"{path} has format {header.format}; this version reads format {FORMAT}")
    return header, _steps(file, path)


def _steps(file: BinaryIO, path: Path) -> Iterator[RecordedStep]:
    with file:
        while True:
            step, masks, output = (_read(file) for _ in range(3))
            if step is None or masks is None or output is None:
                return
            try:
                yield RecordedStep(
                    decode(step, StepInput),
                    decode(masks, TokenMasks) if masks else None,
                    decode(output, StepOutput),
                )
            except (msgspec.DecodeError, ValueError) as error:
                raise ConfigError(f"{path} is damaged: {error}") from error


def _read(file: BinaryIO) -> bytes | None:
    """Return the next message; None if the file ends before the message is complete."""
    length = file.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    part = file.read(size)
    return part if len(part) == size else None


class RecordingExecutor:
    """Computes steps with an executor, and writes them to a recording.

    Args:
        executor: computes the steps.
        writer: writer that has written the header.
    """

    def __init__(self, executor: Executor, writer: StepWriter) -> None:
        self._executor = executor
        self._writer = writer

    @property
    def has_own_threads(self) -> bool:
        """Whether the executor computes on threads of its own; see `Executor.has_own_threads`."""
        return self._executor.has_own_threads

    def forward(self, step: StepInput) -> ForwardPass:
        """Start the forward pass of a step."""
        return self._executor.forward(step)

    def sample(self, forward: ForwardPass, masks: TokenMasks | None = None) -> RecordedOutput:
        """Start sampling for a step; see `Executor.sample`. The step is recorded by the returned object."""
        return RecordedOutput(self._executor.sample(forward, masks), forward.step, masks, self._writer)


class RecordedOutput:
    """Pending output of a step; `result` also writes the step to the recording.

    Call `result` in the order of the steps.

    Args:
        pending: pending output of the executor.
        step: input of the step.
        masks: masks of the step.
        writer: writer of the recording.
    """

    def __init__(
        self, pending: PendingOutput, step: StepInput, masks: TokenMasks | None, writer: StepWriter
    ) -> None:
        self._pending = pending
        self._step = step
        self._masks = masks
        self._writer = writer

    def result(self) -> StepOutput:
        """Wait for the output, record the step, and return it."""
        output = self._pending.result()
        self._writer.add(RecordedStep(self._step, self._masks, output))
        return output
