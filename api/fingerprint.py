"""The system fingerprint: equal for two servers exactly if the same request may be expected to have the same answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec

from llmfw.core.request import EngineInfo

_PACKAGES = ("llmfw", "torch", "transformers", "tokenizers")


def system_fingerprint(info: EngineInfo, parts: Sequence[str | type | None] = ()) -> str:
    """Return "fp_" and a hash of what the engine is, of the API's parts, and of the versions they are made of.

    Where and how much memory there is does not count, nor under which name a model whose weights are known was loaded.

    Args:
        parts: classes, and texts such as that of the chat template.
    """
    info = msgspec.structs.replace(
        info, model="" if info.weight_version else info.model, max_total_tokens=0, max_running_requests=0
    )
    names = [f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else part for part in parts]
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    return "fp_" + hashlib.sha256(msgspec.json.encode([info, names, versions])).hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
