"""`transformers serve` with continuous batching, as `make bench` measures it."""

from __future__ import annotations

from pathlib import Path

import servers

from .peer import Home, Peer


def install(home: Home) -> None:
    """See that its command is there.

    Raises:
        CannotInstallError: it is not.
    """
    home.run([home.folder / "bin" / "transformers", "version"])


def serve(home: Home, _model: Path, _folder: Path) -> servers.Server:
    """Return the server."""
    return servers.transformers_serve(home.folder / "bin" / "transformers")


PEERS = [Peer("transformers", "transformers", 16, "safetensors", serve)]
