"""Creates a conformance test class for an installed component, for `llmfw check`.

The component is built as a server builds it. If the tests need other values of fixtures, the component's
class declares them in its attribute `conformance`: a mapping of fixture names to values, or the path
"package.module:Class" of a test class of its own.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.base.suggestion import did_you_mean
from llmfw.core.plugin.component_options import with_keywords
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

KITS: Mapping[str, tuple[str, str]] = {
    "attention": ("attention:AttentionBackendTests", "backend"),
    "module_pass": ("module_pass:ModulePassTests", "module_pass"),
    "policy": ("policies:SchedulePolicyTests", "policy"),
    "chat_template": ("chat_templates:ChatTemplateTests", "template"),
    "file_store": ("file_stores:FileStoreTests", "open_store"),
    "batch_store": ("batch_stores:BatchStoreTests", "open_store"),
    "response_store": ("response_stores:ResponseStoreTests", "open_store"),
    "grammar": ("grammars:GrammarBackendTests", "backend"),
    "drafter": ("drafters:DrafterTests", "drafter"),
    "tool_parser": ("tool_parsers:ToolParserTests", "parser"),
    "reasoning_parser": ("reasoning_parsers:ReasoningParserTests", "parser"),
    "model": ("model_sources:ModelSourceTests", "source"),
    "observer": ("observers:RequestObserverTests", "observer"),
    "authenticator": ("authenticators:AuthenticatorTests", "authenticator"),
    "middleware": ("middleware:HTTPMiddlewareTests", "middleware"),
    "request_field": ("request_fields:RequestFieldTests", "field"),
    "eviction": ("eviction_rules:EvictionRuleTests", "rule"),
    "logits_processor": ("logits_processors:LogitsProcessorTests", "processor"),
    "weight_loader": ("weight_loaders:WeightLoaderTests", "loader"),
    "quantization_scheme": ("quantization_schemes:QuantizationSchemeTests", "scheme"),
    "quantized_format": ("quantized_formats:QuantizedFormatTests", "quantized_format"),
    "model_adapter": ("model_adapters:ModelAdapterTests", "adapter"),
    "token_sampler": ("token_samplers:TokenSamplerTests", "token_sampler"),
    "router": ("routers:RouterTests", "router"),
    "adapter_source": ("adapter_sources:AdapterSourceTests", "source"),
    "media_processor": ("media_processors:MediaProcessorTests", "processor_class"),
}
"""Component kind → (module and test class in this package, fixture that returns the component)."""


def conformance_class(
    kind: str, name: str, options: Mapping[str, OptionValue], fixtures: Mapping[str, Any]
) -> type[Any]:
    """Return a test class for an installed component.

    Args:
        kind: kind of the component.
        name: name of the component.
        options: options of the component, "kind.key" → value.
        fixtures: values of fixtures, by name; they override the values that the component declares.

    Raises:
        ConfigError: no such component, option or fixture exists.
        ComponentError: the component or its `conformance` cannot be imported.
    """
    entry = load_plugins().registry.find(kind, name)
    component = entry.load(checked=False)
    module, _, kit_name = KITS[kind][0].partition(":")
    kit = getattr(importlib.import_module(f".{module}", __package__), kit_name)
    declared = getattr(component, "conformance", {})
    if isinstance(declared, str):
        base, given = _own_class(entry, declared, kit), {}
        if options:
            given = {"options": lambda: entry.build_options(options)}
    else:
        base = kit
        given = {KITS[kind][1]: _fixture_of(entry, component, options)}
        given |= {
            key: _constant(value) for key, value in declared.items() if key != "examples"
        }  # test classes read "examples" themselves
    if entry.kind == "weight_loader":
        given["options"] = lambda: entry.build_options(options)
    known = fixtures_of(base)
    if entry.kind == "policy" and base is kit:
        given.setdefault("fields", _constant(entry.needs_fields))
    for key in (*given, *fixtures):
        if key not in known and key != "options":
            raise ConfigError(_unknown_fixture(entry, key, known))
    given |= {key: _constant(value) for key, value in fixtures.items()}
    _check_needed(entry, kit, base, given)
    return type("TestInstalledComponent", (base,), {key: _made_fixture(make) for key, make in given.items()})


def _check_needed(
    entry: Entry, kit: type[Any], base: type[Any], given: Mapping[str, Callable[[], Any]]
) -> None:
    """Raise ConfigError if a required value is missing or has a wrong type."""
    for key, (kind, meaning) in getattr(kit, "needed", {}).items():
        if key in given:
            try:
                msgspec.convert(given[key](), kind)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{key} of {entry} has to be {meaning}: {error}") from error
        elif inspect.getattr_static(base, key) is inspect.getattr_static(kit, key):
            raise ConfigError(
                f"most promises of {entry.kind} {entry.name!r} cannot be checked without {key}: give it by --set {key}=…, "
                f"{meaning}"
            )


def fixtures_of(kit: type[Any]) -> list[str]:
    """Return the names of a test class's fixtures."""
    found = inspect.getmembers(kit, lambda member: type(member).__name__ == "FixtureFunctionDefinition")
    return [name for name, _ in found]


def _fixture_of(entry: Entry, component: type[Any], options: Mapping[str, OptionValue]) -> Callable[[], Any]:
    """Return a function that returns the value of the component's fixture.

    The value is an instance with these options if the component is a policy, a drafter, an observer,
    middleware, an authenticator, a request field, an eviction rule, a router, an adapter source, a logits processor, a
    quantization scheme or a model. Otherwise, it is a class.
    """
    built = entry.build_options(options)
    if entry.kind in (
        "policy",
        "drafter",
        "observer",
        "middleware",
        "authenticator",
        "request_field",
        "eviction",
        "router",
        "adapter_source",
        "quantization_scheme",
    ):
        return lambda: component(built)
    if entry.kind == "logits_processor":
        from .logits_processors import ExampleContext  # imports torch

        return lambda: component(ExampleContext(), built)
    if entry.kind == "weight_loader":  # the tests build it for each folder, with the fixture options
        return lambda: component
    if entry.kind == "model":
        return lambda: component(**entry.built_with(options))
    if not built.__struct_fields__:
        return lambda: component
    if entry.kind == "attention":
        return lambda: _with_options(component, built)
    return lambda: with_keywords(component, {"options": built})


def _with_options(component: type[Any], options: Any) -> type[Any]:
    """Return a subclass of an attention backend that always uses these options."""

    def build(self: Any, layers: Any, storage: Any, _: Any) -> None:
        component.__init__(self, layers, storage, options)

    return type(component.__name__, (component,), {"__init__": build})


def _own_class(entry: Entry, path: str, kit: type[Any]) -> type[Any]:
    module, _, name = path.partition(":")
    if module not in sys.modules:
        pytest.register_assert_rewrite(module)
    try:
        found: type[Any] = getattr(importlib.import_module(module), name)
    except Exception as error:  # any exception of a plugin's module is the cause to report
        raise ComponentError(
            f"{entry}: its conformance {path!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, kit)):
        raise ComponentError(f"{entry}: its conformance {path!r} is not a subclass of {kit.__name__}")
    return found


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _made_fixture(make: Callable[[], Any]) -> Any:
    """Return a pytest fixture with the value `make()`, to be added to a test class as a method."""

    def fixture(self: object) -> Any:
        return make()

    return pytest.fixture(fixture)


def _unknown_fixture(entry: Entry, key: str, known: Sequence[str]) -> str:
    hint = did_you_mean(key, known)
    return f"the tests of {entry.kind} have no fixture {key!r}; they have {', '.join(known)}{hint}"
