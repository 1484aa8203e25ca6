"""Quantization schemes for tests, as `--quantization` chooses them."""

from __future__ import annotations

from typing import Any

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.quantization_scheme import QuantizationScheme
from llmfw.core.model.quantization.chosen_scheme import ChosenScheme, choose_scheme
from llmfw.core.plugin.registry import Entry, Registry

BUNDLED = ("int8", "int4")


def entry(kind: type[QuantizationScheme], name: str = "") -> Entry:
    """Return the registration of a scheme by a plugin named "ext"."""
    path = f"{kind.__module__}:{kind.__name__}"
    return Entry("quantization_scheme", name or kind.__name__, path, "ext", "llmfw-ext", "1.2")


def bundled() -> list[Entry]:
    """Return the registrations of the bundled schemes."""
    path = "llmfw.plugins.quantization_int.schemes"
    return [
        Entry(
            "quantization_scheme", name, f"{path}:{name.title()}", "quantization_int", "llmfw-engine", "1.0"
        )
        for name in BUNDLED
    ]


def chosen(scheme: str | type[QuantizationScheme], **options: Any) -> ChosenScheme:
    """Return a bundled scheme by its name, or a scheme of a class."""
    name = scheme if isinstance(scheme, str) else scheme.__name__
    entries = bundled() if isinstance(scheme, str) else [entry(scheme)]
    given = {f"quantization_scheme.{key}": value for key, value in options.items()}
    found = choose_scheme(EngineConfig(model="m", quantization=name, options=given), Registry(entries))
    assert found is not None
    return found
