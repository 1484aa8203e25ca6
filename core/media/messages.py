"""Messages between the API process and its workers that decode images.

They are encoded with msgpack, in the frames of `core.ipc.wire`. The bytes of files and pixels do not travel in them:
both processes have the same memory file open.
"""

from __future__ import annotations

import msgspec

from .limits import ImageLimits, Reason


class Job(msgspec.Struct, frozen=True, tag="job"):
    """A file to decode. It starts at the first byte of the memory file, which the pixels then replace.

    Attributes:
        size: size of the file in bytes.
        limits: limits of the image.
    """

    size: int
    limits: ImageLimits


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Reports that the worker has loaded its decoders."""


class Unable(msgspec.Struct, frozen=True, tag="unable"):
    """Reports that the worker cannot decode anything, for example because Pillow is missing."""

    message: str


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """The size of a decoded picture, whose pixels are in the memory file."""

    width: int
    height: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Why an image is not accepted; the fields of an `ImageRefusedError`."""

    reason: Reason
    message: str


FromWorker = Decoded | Refused | Ready | Unable

encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_answer = msgspec.msgpack.Decoder(FromWorker).decode
decode_outcome = msgspec.msgpack.Decoder(Decoded | Refused).decode
