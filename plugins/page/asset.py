"""The files of the page. Each file is compressed once, and has an entity tag."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import msgspec

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Asset(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        name: name of the file, such as "app.js".
        media_type: value of the header `content-type`.
        plain, packed: the content uncompressed, and compressed by gzip.
        tag: entity tag of the plain content, with quotes.
    """

    name: str
    media_type: str
    plain: bytes
    packed: bytes
    tag: str

    def tag_of(self, *, is_packed: bool) -> str:
        """Return the entity tag of one of the two encodings. Each encoding has its own tag."""
        return f'{self.tag[:-1]}-gzip"' if is_packed else self.tag


def read_assets(folder: Path) -> dict[str, Asset]:
    """Return the files of a folder by name.

    Raises:
        KeyError: the name of a file ends with none of `MEDIA_TYPES`.
    """
    return {path.name: _read(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _read(path: Path) -> Asset:
    plain = path.read_bytes()
    return Asset(
        path.name,
        MEDIA_TYPES[path.suffix],
        plain,
        gzip.compress(plain, mtime=0),
        f'"{hashlib.sha256(plain).hexdigest()[:20]}"',
    )
