"""Records all inputs and outputs of an executor in a file, so that the steps can be replayed.

    header        settings and capacity, as msgpack
    each step     StepInput, TokenMasks (empty if there are none), StepOutput

The header and each of a step's three messages are preceded by their length and followed by a CRC-32 (4 bytes
each, little-endian). Each CRC-32 covers all messages and lengths of the file up to its position, so readers
detect a damaged, lost or swapped message. The file contains the token ids of prompts and outputs. It also
contains the request fields of requests that use logits processors.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llmfw.core.base.about import version
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.base.step import StepInput, StepOutput, TokenMasks, decode, encode

from .executor import Executor, ForwardPass
from .pending import PendingOutput

FORMAT = 2
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
        self._crc = 0
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
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
        framed = b""
        for part in parts:
            length = LENGTH.pack(len(part))
            self._crc = zlib.crc32(part, zlib.crc32(length, self._crc))
            framed += length + part + LENGTH.pack(self._crc)
        with open(self._path, "ab") as file:
            file.write(framed)


class StepReader:
    """Reads a recording: first the header, then the steps in their order.

    Args:
        path: path of the recording.

    Raises:
        ConfigError: the file cannot be read, or is not a recording in this format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._crc = 0
        try:
            with path.open("rb") as self._file:
                self._size = os.fstat(self._file.fileno()).st_size
                self.header = self._header()
                self._first = self._file.tell()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(
                f"{path} is not a recording of steps: {error}. `--record-steps` writes one"
            ) from error

    def steps(self) -> Iterator[RecordedStep]:
        """Yield the steps, once.

        Raises:
            ConfigError: the file holds no steps, ends within one, or is damaged.
        """
        number = 1
        with self._path.open("rb") as self._file:
            self._file.seek(self._first)
            while self._file.tell() < self._size:
                try:
                    yield self._step()
                except _CutError as error:
                    raise ConfigError(
                        f"{self._path} ends within step {number}, since it was cut or its server was killed; it has "
                        f"{number - 1} whole steps"
                    ) from error
                except (msgspec.DecodeError, ValueError, RequestError) as error:
                    raise damaged(self._path, number, error) from error
                number += 1
        if number == 1:
            raise ConfigError(
                f"{self._path} holds no steps: its server computed nothing, or the file was cut"
            )

    def _step(self) -> RecordedStep:
        step, masks, output = self._read(), self._read(), self._read()
        return RecordedStep(
            decode(step, StepInput), decode(masks, TokenMasks) if masks else None, decode(output, StepOutput)
        )

    def _header(self) -> RecordingHeader:
        message = self._message()
        header = msgspec.msgpack.decode(message, type=RecordingHeader)
        if header.format != FORMAT:
            raise ConfigError(f"{self._path} has format {header.format}; this version reads format {FORMAT}")
        self._check_crc(message)
        return header

    def _read(self) -> bytes:
        message = self._message()
        self._check_crc(message)
        return message

    def _message(self) -> bytes:
        """Return the next message, without its length."""
        (size,) = LENGTH.unpack(self._bytes(LENGTH.size))
        return self._bytes(size)

    def _check_crc(self, message: bytes) -> None:
        self._crc = zlib.crc32(message, zlib.crc32(LENGTH.pack(len(message)), self._crc))
        if self._bytes(LENGTH.size) != LENGTH.pack(self._crc):
            raise ValueError("its bytes do not fit their CRC-32")

    def _bytes(self, size: int) -> bytes:
        # Avoids allocating up to 4 GB for a wrong length.
        if size > self._size - self._file.tell():
            raise _CutError("the file ends too early")
        return self._file.read(size)


class _CutError(ValueError):
    """The file ends within a message."""


def damaged(path: Path, number: int, reason: object) -> ConfigError:
    """Return the error for a step that cannot be read or computed."""
    return ConfigError(f"{path} is damaged at step {number}: {reason}")


def read_recording(path: Path) -> tuple[RecordingHeader, Iterator[RecordedStep]]:
    """Return the header of a recording, and an iterator over its steps.

    Raises:
        ConfigError: the file cannot be read, or is not a recording in this format. The iterator also raises
            this error if the file ends within a step or is damaged.
    """
    reader = StepReader(path)
    return reader.header, reader.steps()


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
        """Wait for the output, write the step to the recording, and return the output."""
        output = self._pending.result()
        self._writer.add(RecordedStep(self._step, self._masks, output))
        return output
