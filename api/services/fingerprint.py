"""The system fingerprint: equal for two servers exactly if the same request may be expected to have the same answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.config import OptionValue
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.plugin.component_options import option_text

TELLING_KINDS = ("attention", "chat_template", "grammar", "reasoning_parser", "tool_parser")
"""Kinds of components that a reply depends on. Policies, drafters and stores change no text; a model's weights count."""

_PACKAGES = (DISTRIBUTION, "torch", "transformers", "tokenizers")


def system_fingerprint(
    info: EngineInfo,
    components: Sequence[str | type | None] = (),
    options: Mapping[str, OptionValue] = {},
    sampling_defaults: Mapping[str, float] = {},
) -> str:
    """Return "fp_" and a hash of what the engine is, of the API's components, and of the versions they are made of.

    Where and how much memory there is does not count, nor the order of requests, nor under which name a model whose
    weights are known was loaded.

    Args:
        components: classes, and texts such as that of the chat template.
        options: of components, "kind.key" → value, as they were given: one from a file is equal to its text.
        sampling_defaults: with which a request is sampled that does not say.
    """
    info = msgspec.structs.replace(
        info,
        model="" if info.weight_version else info.model,
        policy="",
        max_total_tokens=0,
        max_running_requests=0,
    )
    given = [
        (key, option_text(value))
        for key, value in sorted(options.items())
        if key.partition(".")[0] in TELLING_KINDS
    ]
    defaults = sorted(sampling_defaults.items())
    names = [
        f"{component.__module__}.{component.__qualname__}" if isinstance(component, type) else component
        for component in components
    ]
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    return (
        "fp_" + hashlib.sha256(msgspec.json.encode([info, names, given, defaults, versions])).hexdigest()[:12]
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
