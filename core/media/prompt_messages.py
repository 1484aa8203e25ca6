"""Jobs for the processes that prepare images for a model, and their answers, encoded with msgpack.

The text, the pixels and the finished prompt are not in the messages, but in the memory file that both
processes have open.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt


class Setup(msgspec.Struct, frozen=True):
    """How a process builds the media processor.

    Attributes:
        entry: fields of the media processor's registry `Entry`.
        model: the model's folder.
    """

    entry: dict[str, Any]
    model: str


class Source(msgspec.Struct, frozen=True):
    """The source of a prompt: a text with a placeholder for each image, and the images."""

    text: str
    images: tuple[Image, ...]


class PromptJob(msgspec.Struct, frozen=True):
    """A prompt to make. The `MediaPrompt` replaces its `Source` at the beginning of the memory file.

    Attributes:
        size: size of the encoded source, in bytes.
        cpu_s: CPU time after which the job is stopped, in seconds. The limit on wall time is four times as long.
        memory_mb: memory that the job may take in addition to the processor's own, in MiB.
    """

    size: int
    cpu_s: float
    memory_mb: int

    @property
    def longest_s(self) -> float:
        """Seconds after which the job is stopped even if it has used little CPU time."""
        return 4 * self.cpu_s


class Made(msgspec.Struct, frozen=True, tag="made"):
    """The size of the encoded prompt in the memory file, in bytes."""

    size: int


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """The reason, for the client, why no prompt can be made of this text and these images, and its code."""

    message: str
    code: str | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """An exception that the media processor must not raise: its class, and the end of its traceback."""

    kind: str
    trace: str


Outcome = Made | Rejected | Failed

encode = msgspec.msgpack.Encoder().encode
decode_source = msgspec.msgpack.Decoder(Source).decode
decode_job = msgspec.msgpack.Decoder(PromptJob).decode
decode_outcome = msgspec.msgpack.Decoder(Outcome).decode
decode_prompt = msgspec.msgpack.Decoder(MediaPrompt).decode
