"""The system fingerprint: equal for two servers exactly if the same request may be expected to have the same answer."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version

import msgspec

from llmfw.core.request import EngineInfo

_PACKAGES = ("llmfw", "torch", "transformers", "tokenizers")


def system_fingerprint(info: EngineInfo) -> str:
    """Return "fp_" and a hash of what the engine is and of the versions it is made of."""
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    return "fp_" + hashlib.sha256(msgspec.json.encode([info, versions])).hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
