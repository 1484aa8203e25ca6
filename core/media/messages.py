"""Jobs for the processes that decode images, and their answers, encoded with msgpack.

The bytes of files and pixels are not in the messages, but in the memory file that both processes have open.
"""

from __future__ import annotations

import msgspec

from .limits import ImageLimits, Reason


class Job(msgspec.Struct, frozen=True, tag="job"):
    """A file to decode. It starts at the first byte of the memory file. The pixels then replace the file.

    Attributes:
        size: size of the file in bytes.
        limits: limits of the image.
    """

    size: int
    limits: ImageLimits


class Decoded(msgspec.Struct, frozen=True, tag="decoded"):
    """The size of a decoded picture, whose pixels are in the memory file."""

    width: int
    height: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The reason why an image is not accepted; the fields of an `ImageRefusedError`."""

    reason: Reason
    message: str


encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_outcome = msgspec.msgpack.Decoder(Decoded | Refused).decode
