"""Messages between the API process and the worker that prepares prompts with images, as frames of msgpack.

API process   Launch ──►        Work ──►
worker                ◄── Ready       ◄── Done, Refused or Broken
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt

PREFIX = struct.Struct("<Q")
"""Length of a frame, before it."""


class Launch(msgspec.Struct, tag="launch"):
    """First message to a worker.

    Attributes:
        model: the model's folder.
        entry: fields of the media processor's registry entry.
        import_path: `sys.path` of the API process.
        max_bytes: memory that the worker may take in addition to what it takes when it is ready; None: no limit.
    """

    model: str
    entry: dict[str, Any]
    import_path: list[str]
    max_bytes: int | None


class Work(msgspec.Struct, tag="work"):
    """A prompt to prepare: its text, with a placeholder for each image, and the images."""

    text: str
    images: list[Image]


class Ready(msgspec.Struct, tag="ready"):
    """The worker is ready."""


class Done(msgspec.Struct, tag="done"):
    """A prepared prompt."""

    prompt: MediaPrompt


class Refused(msgspec.Struct, tag="refused"):
    """The processor's RequestError: its message and parameter."""

    message: str
    param: str | None


class Broken(msgspec.Struct, tag="broken"):
    """The processor cannot be built, or raised an unexpected exception.

    Attributes:
        message: the exception, with the component.
        trace: traceback, for the log.
    """

    message: str
    trace: str


ToWorker = Launch | Work
FromWorker = Ready | Done | Refused | Broken

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
decode_to_worker = _to_worker.decode
decode_from_worker = _from_worker.decode


def framed(message: ToWorker | FromWorker) -> bytes:
    """Return a message as a frame."""
    payload = _encoder.encode(message)
    return PREFIX.pack(len(payload)) + payload
