"""OpenVINO GenAI's continuous batching, behind a small server of ours: what is on PyPI has none."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from servers import Server

from .peer import INSIDE, Home, Peer

CACHE_GB = 2  # whole gigabytes: more than the 32,768 tokens of the others need for either model, with either precision


def install(home: Home) -> None:
    """See that it can be imported, as a wheel of another platform's could not.

    Raises:
        CannotInstallError: it cannot.
    """
    home.run([home.python, "-c", "import openvino_genai, openvino_tokenizers"])


def serve(home: Home, model: Path, folder: Path, *, options: tuple[str, ...] = ()) -> Server:
    """Return the server."""
    command = [str(home.python), "-P", str(INSIDE / "openvino_server.py"), str(model), "--port", "{port}"]
    command += ["--tokenizer", str(folder / "tokenizer.json"), "--cache-gb", str(CACHE_GB), *options]
    return Server("openvino", command)


def _peer(name: str, bits: int, weights: str, *options: str) -> Peer:
    return Peer(name, "openvino", bits, weights, partial(serve, options=options))


PEERS = [
    _peer("openvino", 16, "f16"),
    _peer("openvino-f32", 16, "f16", "--precision", "f32"),
    _peer("openvino-int8", 8, "q8_0"),
    _peer("openvino-int4", 4, "q4_0"),
]
