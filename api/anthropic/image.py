"""Reads Anthropic's blocks of images."""

from __future__ import annotations

from llmfw.api.media.part import ImagePart

from .fields import Fields

_SOURCES = {"base64": "data", "url": "url", "file": "file_id"}
"""Type of an image's source → the key that has the image."""


def image_of(block: Fields, ignored: set[str]) -> ImagePart:
    """Return the image of a block; raise RequestError, which names the field, if the block is malformed.

    Ignores the media type that the source states: the data shows the type.

    Args:
        ignored: set that receives the paths of keys without effect.
    """
    given = block.raw("source")
    source = Fields(given, f"{block.param}.source", ignored)
    kind = source.raw("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        source.refuse("type", kind, f"one of {', '.join(_SOURCES)}")
    name = _SOURCES[kind]
    value = source.take(name, str, "a string")
    if kind == "base64":
        source.raw("media_type")
    source.close()
    return ImagePart(
        kind="image",
        param=f"{source.param}.{name}",
        url=value if kind == "url" else None,
        base64=value if kind == "base64" else None,
        file_id=value if kind == "file" else None,
    )
