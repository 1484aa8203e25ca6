"""The adapter source `folder`: adapters are the folders below one folder."""

from __future__ import annotations

import re
from pathlib import Path

from llmfw.core import AdapterSource, ConfigError

FILES = ("adapter_config.json", "adapter_model.safetensors")
_PART = re.compile(r"\w[\w.+-]*")
MAX_PARTS = 4


class FolderAdapters(AdapterSource):
    """Finds the adapter NAME in the folder PATH/NAME. A name may have slashes: `team/sql`.

    Only files in PATH are found: a link that leads out of it is not.
    """

    class Options(AdapterSource.Options, frozen=True):
        """
        Attributes:
            path: folder of the adapters' folders.
        """

        path: str

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        root = Path(options.path)
        if not root.is_dir():
            raise ConfigError(
                f"adapter_source.path is {options.path!r:.200}, which is not a folder; give the folder of adapters"
            )
        self._root = root.resolve()

    def find(self, name: str) -> str | None:
        """Return the folder of an adapter; None if there is none."""
        parts = name.split("/")
        if len(parts) > MAX_PARTS or not all(_PART.fullmatch(part) for part in parts):
            return None
        folder = self._root.joinpath(*parts)
        try:
            places = [(folder / file).resolve(strict=True) for file in FILES]
        except (OSError, RuntimeError):  # missing, too long, or links in a ring
            return None
        if not all(place.is_file() and place.is_relative_to(self._root) for place in places):
            return None
        # On a file system that ignores case or accents, another spelling would be a second name.
        return str(folder) if _is_spelled(self._root, parts) else None


def _is_spelled(folder: Path, parts: list[str]) -> bool:
    """Return whether each part is the exact name of an entry of the folder before it."""
    for part in parts:
        try:
            if part not in {each.name for each in folder.iterdir()}:
                return False
        except OSError:
            return False
        folder = folder / part
    return True
