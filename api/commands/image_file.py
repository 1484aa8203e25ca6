"""Reads image files for requests to a server."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import RequestError
from llmfw.core.media.structure import READERS


def image_part_of(path: str) -> dict[str, Any]:
    """Return an image file as a part of a message.

    Raises:
        RequestError: the file cannot be read, or has no format that servers accept.
    """
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    name = next((name for name, (magic, _) in READERS.items() if magic.match(data)), None)
    if name is None:
        raise RequestError(f"{path} is no image that servers accept; it must be one of {', '.join(READERS)}")
    url = f"data:image/{name.lower()};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
