"""The system fingerprint. Two servers have the same fingerprint if both should reply in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from llmfw.core.base.about import DISTRIBUTION, version_of
from llmfw.core.base.allowed_values import as_text
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.client.client import EngineClient

TELLING_KINDS = (
    "attention",
    "chat_template",
    "grammar",
    "logits_processor",
    "quantization_scheme",
    "reasoning_parser",
    "tool_parser",
)
"""Kinds of components whose options are part of the fingerprint.

Policies, drafters, observers and stores change no reply.
"""

_PACKAGES = (DISTRIBUTION, "torch", "transformers", "tokenizers")


class CurrentFingerprint:
    """The system fingerprint of an engine, whose weights may be replaced.

    Args:
        client: a started engine client.
        components, options, sampling_defaults: as in `system_fingerprint`.
    """

    def __init__(
        self,
        client: EngineClient,
        components: Sequence[str | type | None],
        options: Mapping[str, OptionValue],
        sampling_defaults: Mapping[str, float],
    ) -> None:
        self._client = client
        self._others = components, options, sampling_defaults
        self._info = client.info
        self._fingerprint = system_fingerprint(self._info, *self._others)

    def __call__(self) -> str:
        """Return the fingerprint of replies that are computed now."""
        if self._client.info is not self._info:
            self._info = self._client.info
            self._fingerprint = system_fingerprint(self._info, *self._others)
        return self._fingerprint


def system_fingerprint(
    info: EngineInfo,
    components: Sequence[str | type | None] = (),
    options: Mapping[str, OptionValue] = {},
    sampling_defaults: Mapping[str, float] = {},
) -> str:
    """Return "fp_" and a hash of the engine's properties, the API's components, and the library versions.

    Leaves out what does not change replies: the size of the KV cache, the maximum number of running requests,
    the scheduling policy, and the model's name if `weight_version` identifies its weights.

    Args:
        components: classes of components, and texts such as the chat template's source.
        options: options of components, "kind.key" → value. They are hashed as text, so it does not matter
            whether they come from a file or from the command line.
        sampling_defaults: sampling parameters of requests that leave them unset.
    """
    info = msgspec.structs.replace(
        info,
        model="" if info.weight_version else info.model,
        policy="",
        max_total_tokens=0,
        max_running_requests=0,
    )
    given = [
        (key, as_text(value))
        for key, value in sorted(options.items())
        if key.partition(".")[0] in TELLING_KINDS
    ]
    defaults = sorted(sampling_defaults.items())
    names = [
        f"{component.__module__}.{component.__qualname__}" if isinstance(component, type) else component
        for component in components
    ]
    versions = [f"{name} {version_of(name) or ''}" for name in _PACKAGES]
    return (
        "fp_" + hashlib.sha256(msgspec.json.encode([info, names, given, defaults, versions])).hexdigest()[:12]
    )
