"""Determines the format and the structure of an image file from its bytes, before decoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from . import gif, jpeg, png, webp
from .limits import ImageLimits, ImageRefusedError, check_size, too_many_bytes
from .outline import Outline

READERS: Mapping[str, tuple[re.Pattern[bytes], Callable[[bytes], Outline]]] = {
    "PNG": (re.compile(rb"\x89PNG\r\n\x1a\n"), png.outline_of),
    "JPEG": (re.compile(rb"\xff\xd8\xff"), jpeg.outline_of),
    "WebP": (re.compile(rb"RIFF....WEBP", re.DOTALL), webp.outline_of),
    "GIF": (re.compile(rb"GIF8[79]a"), gif.outline_of),
}
"""Name of a format → its first bytes, and the function that reads its structure."""

_ACCEPTED = "PNG, JPEG, WebP and GIF are accepted"
_OTHERS = (
    (
        "SVG",
        re.compile(
            rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?(?:<!DOCTYPE svg|<svg)", re.DOTALL
        ),
    ),
    ("HTML", re.compile(rb"\s*<(?:!doctype html|html|head|body)", re.IGNORECASE)),
    ("PDF", re.compile(rb"%PDF-")),
    ("BMP", re.compile(rb"BM....\x00\x00\x00\x00", re.DOTALL)),
    ("TIFF", re.compile(rb"II\*\x00|MM\x00\*")),
    ("AVIF", re.compile(rb"....ftypavi[fs]", re.DOTALL)),
    ("HEIC", re.compile(rb"....ftyp(?:hei|hev|mif|msf)", re.DOTALL)),
    ("a video", re.compile(rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI ", re.DOTALL)),
    ("sound", re.compile(rb"RIFF....WAVE|ID3|OggS|fLaC", re.DOTALL)),
    ("JPEG 2000 or XL", re.compile(rb"\x00\x00\x00\x0c(?:jP  |JXL )|\xff\x0a")),
    ("an archive", re.compile(rb"PK\x03\x04|\x1f\x8b|Rar!|7z\xbc\xaf")),
    ("base64 text", re.compile(rb"(?:iVBORw0KGgo|/9j/|UklGR|R0lGOD)")),
)
"""Formats that clients send by mistake, for the error."""

_FOREIGN = re.compile(
    rb"%PDF-|PK\x03\x04|PK\x05\x06|<svg|<html|<script|<\?php|MZ\x90|\x7fELF|GIF8[79]a|\x89PNG|Rar!|7z\xbc\xaf",
    re.IGNORECASE,
)
"""Beginnings of files of other kinds that may follow a picture, or be hidden in one."""
_PDF_PLACE = 1024  # readers of PDF accept its mark anywhere in the first bytes


def read_structure(data: bytes, limits: ImageLimits) -> tuple[str, Outline]:
    """Return the name of a file's format, and its outline.

    Raises:
        ImageRefusedError: the file has no accepted format, is incomplete, holds another file, is animated, or is
            outside the limits.
    """
    if not data:
        raise ImageRefusedError("damaged", "is empty")
    if len(data) > limits.file_bytes:
        raise too_many_bytes(len(data), limits)
    name = _format_of(data)
    outline = READERS[name][1](data)
    check_size(outline.width, outline.height, limits)
    if outline.num_frames > 1 and name != "GIF":
        raise ImageRefusedError("animated", f"is an animated {name}; send a picture with one frame")
    if outline.num_frames > limits.frames:
        raise ImageRefusedError(
            "animated", f"is a GIF with more than {limits.frames} frames; send a picture with one frame"
        )
    _check_rest(name, data, outline.end)
    return name, outline


def _format_of(data: bytes) -> str:
    for name, (magic, _) in READERS.items():
        if magic.match(data):
            return name
    found = next((name for name, magic in _OTHERS if magic.match(data)), None)
    what = f"is {found}" if found else "has a format that this server does not know"
    raise ImageRefusedError("format", f"{what}; {_ACCEPTED}")


def _check_rest(name: str, data: bytes, end: int) -> None:
    """Raise ImageRefusedError if a file holds more than its picture.

    Cameras append previews and depth maps to JPEGs. So a JPEG may have further data, unless the data looks
    like a file of another kind. After the picture of another format, only zeros may follow.
    """
    if b"%PDF-" in data[:_PDF_PLACE]:
        raise ImageRefusedError("extra_data", f"is a {name} and a PDF at once; send the picture alone")
    if name == "JPEG":
        if found := _FOREIGN.search(data, end):
            raise ImageRefusedError(
                "extra_data",
                f"is followed by another file, {found[0]!r}, at byte {found.start()}; send the picture alone",
            )
    elif data[end:].strip(b"\0"):
        raise ImageRefusedError(
            "extra_data", f"has {len(data) - end} bytes after the end of the picture; send the picture alone"
        )
