"""llmfw itself, in the settings that are held against the peers'."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import servers

from .peer import Home, Peer

LLMFW = Path(sys.executable).parent / "llmfw"
SETTINGS = {"llmfw": (16, ()), "llmfw-int8": (8, ("int8",)), "llmfw-int4": (4, ("int4",))}
"""Name → bits of a weight, and what `--quantization` is given."""


def serve(_home: Home, _model: Path, _folder: Path, *, quantization: tuple[str, ...] = ()) -> servers.Server:
    """Return the server."""
    server = servers.llmfw(LLMFW)
    for scheme in quantization:
        server.command += ["--quantization", scheme]
    return server


def missing(bits: int) -> str | None:
    """Return why llmfw cannot serve such weights, or None where it can."""
    if bits == 16:
        return None
    shown = subprocess.run([LLMFW, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return None if "--quantization" in shown else "this llmfw has no --quantization"


PEERS = [
    Peer(name, "llmfw", bits, "safetensors", partial(serve, quantization=quantization))
    for name, (bits, quantization) in SETTINGS.items()
]
