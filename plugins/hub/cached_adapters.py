"""The adapter source `hub-cache`: adapters in the hub's local cache, by their hub id. It downloads nothing."""

from __future__ import annotations

import re
from pathlib import Path

from llmfw.core import AdapterSource

from .folder_adapters import FILES

_ID = re.compile(r"[A-Za-z0-9]\w*(?:[.-]\w+)*/[A-Za-z0-9]\w*(?:[.-]\w+)*", re.ASCII)


class CachedAdapters(AdapterSource):
    """Finds the adapter ORG/NAME in the cache, at the commit that `llmfw pull ORG/NAME` has downloaded last."""

    def find(self, name: str) -> str | None:
        """Return the folder of an adapter; None if the cache does not have both of its files."""
        if not _ID.fullmatch(name):
            return None
        from huggingface_hub import constants, try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        cache = Path(constants.HF_HUB_CACHE).resolve()
        try:
            found = [try_to_load_from_cache(name, file, cache_dir=cache) for file in FILES]
        except HFValidationError:
            return None
        paths = [Path(each) for each in found if isinstance(each, str)]
        if len(paths) < len(FILES) or not all(each.resolve().is_relative_to(cache) for each in paths):
            return None
        # On a file system that ignores case, another spelling would be a second name.
        is_spelled = f"models--{name.replace('/', '--')}" in {each.name for each in cache.iterdir()}
        return str(paths[0].parent) if is_spelled else None
