"""What plugins may import from llmfw, and what of it a release keeps: the one list that docs and tests go by.

`surface` describes it as plain data, `complaints` compares two of these. The last release's is recorded in
public_surface.json; `make surface` records it anew. docs/compatibility.md says what the rules are.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import public_http

from llmfw.api.cli import build_cli
from llmfw.core.base.about import version
from llmfw.core.plugin.hookspecs import HookSpecs
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.plugins import load_plugins

RECORD = Path(__file__).with_name("public_surface.json")
CHANGELOG = Path(__file__).with_name("changelog.md")

PUBLIC: dict[str, tuple[str, ...]] = {
    "llmfw.core": (
        "hookimpl",
        "PluginError",
        "HookSpecs",
        "Register",
        "RegisterRoute",
        "AttentionBackend",
        "LayerSpec",
        "ForwardBatch",
        "KVStorage",
        "ModulePass",
        "SchedulePolicy",
        "Ordering",
        "Waiting",
        "Running",
        "Figures",
        "Places",
        "ChatTemplate",
        "Message",
        "FileStore",
        "FileRecord",
        "Describe",
        "BatchStore",
        "BatchResults",
        "BatchRecord",
        "BatchError",
        "BatchUsage",
        "LineResult",
        "ENDED",
        "ResponseStore",
        "ResponseRecord",
        "GrammarBackend",
        "Grammar",
        "Drafter",
        "SequenceDrafter",
        "DraftedRequest",
        "ToolParser",
        "ReasoningParser",
        "ContentDelta",
        "ReasoningDelta",
        "ToolCallDelta",
        "CallFormat",
        "MessageMarks",
        "ModelSource",
        "RequestField",
        "LazyCommand",
        "ASGIApplication",
        "ASGIMessage",
        "ASGIReceive",
        "ASGIScope",
        "ASGISend",
        "Attend",
        "Authenticator",
        "CacheLeaf",
        "Credentials",
        "EvictionRule",
        "HTTPMiddleware",
        "LinearLayer",
        "LogitsProcessor",
        "ModelAdapter",
        "Principal",
        "ProcessedRequest",
        "ProcessedRows",
        "ProcessorContext",
        "QuantizationScheme",
        "QuantizedFormat",
        "Refusal",
        "RequestEnded",
        "RequestEvent",
        "RequestFirstToken",
        "RequestObserver",
        "RequestStarted",
        "StoredLayer",
        "StoredTensor",
        "WeightLoader",
        "GrammarSpec",
        "Request",
        "SamplingParams",
        "Thinking",
        "FinishReason",
        "TokenEvent",
        "TokenLogprob",
        "EngineInfo",
        "EngineStats",
        "Tokenizer",
        "EngineClient",
        "ReplicaState",
        "RequestWatch",
        "ServerConfig",
        "SCOPES",
        "MediaProcessor",
        "MediaPrompt",
        "MediaSpan",
        "MediaArray",
        "Image",
        "AdapterSource",
        "Router",
        "RoutedRequest",
        "ReplicaView",
        "TokenSampler",
        "RowNumbers",
        "Filters",
        "TenantLimits",
        "describe",
        "Operation",
        "ServerAPI",
        "ServedModel",
        "Failure",
        "Caller",
        "CallerFiles",
        "Classifications",
        "ContinuationScore",
        "Embeddings",
        "GeneratedText",
        "RouteServices",
        "Scores",
        "TextPiece",
        "Answer",
        "CacheView",
        "Command",
        "FlushCache",
        "GetMemory",
        "GetPolicy",
        "GetTrace",
        "LogLevelInfo",
        "MemoryInfo",
        "PinInfo",
        "PinPrefix",
        "AdapterInfo",
        "AdapterList",
        "ListAdapters",
        "LoadAdapter",
        "UnloadAdapter",
        "AddReplica",
        "DrainReplica",
        "ListReplicas",
        "RemoveReplica",
        "ReplicaInfo",
        "ReplicaList",
        "UndrainReplica",
        "PolicyInfo",
        "RequestTrace",
        "TraceEntry",
        "PrefixInfo",
        "SetLogLevel",
        "SetPolicy",
        "Sleep",
        "UnpinPrefix",
        "ViewCache",
        "ViewSteps",
        "StepsView",
        "StepView",
        "RequestView",
        "Wake",
        "LoadWeights",
        "WeightsInfo",
        "ComponentUse",
        "StepSeconds",
        "Histogram",
        "EmbedRequest",
        "Wait",
        "LineCrash",
        "IncrementalDetokenizer",
        "load_plugins",
        "Plugins",
        "LoadedPlugin",
        "Registry",
        "Entry",
        "BrokenPlugin",
        "LLMFWError",
        "ConfigError",
        "UnknownComponentError",
        "LostComponentError",
        "ModelError",
        "ComponentError",
        "PluginError",
        "RequestError",
        "ContextLengthError",
        "MissingScopeError",
        "ModelNotFoundError",
        "NotFoundError",
        "TooLargeError",
        "ConflictError",
        "StorageError",
        "StorageFullError",
        "StorageDamagedError",
        "ContentLostError",
        "OverloadedError",
        "NotReadyError",
        "TenantLimitError",
        "RateLimitError",
        "DeadlineError",
        "ComponentFailedError",
        "EngineError",
        "CrashingRequestError",
        "UnreadableRequestError",
        "EngineDeadError",
        "EngineRestartingError",
        "EngineLostError",
    ),
    "llmfw.core.model.trial.module_trial": (
        "is_untouched",
        "is_of_transformers",
        "uses_our_attention",
        "random_input",
        "attention_input",
        "agree",
        "Recording",
    ),
    "llmfw.core.testing": (
        "BatchStoreTests",
        "ChatTemplateTests",
        "DrafterTests",
        "FileStoreTests",
        "GrammarBackendTests",
        "GrammarExample",
        "ModelSourceTests",
        "ReasoningExample",
        "ReasoningParserTests",
        "AdapterSourceTests",
        "AuthenticatorTests",
        "EvictionRuleTests",
        "HTTPMiddlewareTests",
        "LogitsProcessorTests",
        "MediaProcessorTests",
        "MiddlewareExample",
        "ModelAdapterTests",
        "QuantizationSchemeTests",
        "QuantizedExample",
        "QuantizedFormatTests",
        "RequestObserverTests",
        "RouterTests",
        "TokenSamplerTests",
        "WeightLoaderTests",
        "RequestFieldTests",
        "ResponseStoreTests",
        "SchedulePolicyTests",
        "ToolExample",
        "ToolParserTests",
    ),
    "llmfw.core.testing.attention": ("AttentionBackendTests",),
    "llmfw.core.testing.module_pass": ("ModulePassTests",),
    "llmfw.core.testing.policy_views": (
        "make_waiting",
        "make_running",
        "make_figures",
    ),
}
"""Module → the names that may be imported from it."""

IMPLEMENTED = frozenset(INTERFACES.values()) | {
    "llmfw.core:Grammar",
    "llmfw.core:SequenceDrafter",
    "llmfw.core:BatchResults",
}
"""Classes that plugins derive from: llmfw calls their methods, so signatures stay as they are."""

GIVEN = frozenset(
    {
        "llmfw.core:LayerSpec",
        "llmfw.core:ForwardBatch",
        "llmfw.core:KVStorage",
        "llmfw.core:Waiting",
        "llmfw.core:Running",
        "llmfw.core:DraftedRequest",
        "llmfw.core:Figures",
        "llmfw.core:EngineInfo",
        "llmfw.core:EngineStats",
        "llmfw.core:Plugins",
        "llmfw.core:LoadedPlugin",
        "llmfw.core:Registry",
        "llmfw.core:Entry",
        "llmfw.core:BrokenPlugin",
        "llmfw.core:Tokenizer",
        "llmfw.core:EngineClient",
        "llmfw.core:ServerConfig",
        "llmfw.core:ServerAPI",
        "llmfw.core:ServedModel",
        "llmfw.core:Failure",
        "llmfw.core:CacheView",
        "llmfw.core:StepsView",
        "llmfw.core:StepView",
        "llmfw.core:RequestView",
        "llmfw.core:PinInfo",
        "llmfw.core:PolicyInfo",
        "llmfw.core:RequestTrace",
        "llmfw.core:TraceEntry",
        "llmfw.core:PrefixInfo",
        "llmfw.core:ComponentUse",
        "llmfw.core:StepSeconds",
        "llmfw.core:Histogram",
        "llmfw.core:Wait",
        "llmfw.core:IncrementalDetokenizer",
        "llmfw.core:Caller",
        "llmfw.core:CallerFiles",
        "llmfw.core:Classifications",
        "llmfw.core:ContinuationScore",
        "llmfw.core:Embeddings",
        "llmfw.core:GeneratedText",
        "llmfw.core:RouteServices",
        "llmfw.core:Scores",
        "llmfw.core:TextPiece",
        "llmfw.core:CacheLeaf",
        "llmfw.core:Credentials",
        "llmfw.core:LinearLayer",
        "llmfw.core:ProcessedRequest",
        "llmfw.core:ProcessedRows",
        "llmfw.core:ProcessorContext",
        "llmfw.core:RequestEnded",
        "llmfw.core:RequestFirstToken",
        "llmfw.core:RequestStarted",
    }
)
"""Classes whose objects plugins are given and do not make: they may gain anything."""


def surface() -> dict[str, Any]:
    """Return what is public today, as JSON has it."""
    found = {
        "version": version(),
        "hooks": {
            name: list(inspect.signature(hook).parameters)[1:]
            for name, hook in vars(HookSpecs).items()
            if not name.startswith("_")
        },
        "kinds": dict(INTERFACES),
        "names": {
            f"{module}:{name}": _described(getattr(importlib.import_module(module), name), f"{module}:{name}")
            for module, names in PUBLIC.items()
            for name in names
        },
        "commands": dict(_commands(build_cli(), "llmfw")),
        "routes": public_http.routes(load_plugins().registry),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _described(value: Any, path: str) -> dict[str, Any]:
    if inspect.isclass(value):
        return _described_class(value, path)
    if inspect.isfunction(value):
        return {"parameters": _parameters(value)}
    return {}


def _described_class(kind: type, path: str) -> dict[str, Any]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("llmfw.")]
    members = {name: member for base in reversed(own) for name, member in vars(base).items()}
    fields = _fields(kind)
    found: dict[str, Any] = {"bases": [base.__name__ for base in kind.__mro__[1:-1]], "fields": fields}
    found["methods"] = {
        name: _method(member)
        for name, member in members.items()
        if not name.startswith(("_", "test_")) and _function_of(member) is not None
    }
    found["attributes"] = sorted(
        name
        for name, member in members.items()
        if not name.startswith("_") and name not in fields and _function_of(member) is None
    )
    if not fields and path not in GIVEN and "__init__" in members:
        found["constructor"] = _parameters(members["__init__"])[1:]
    return found


def _fields(kind: Any) -> dict[str, bool]:
    """Return whether each field of a struct, data class, named tuple or enumeration has to be given."""
    if issubclass(kind, msgspec.Struct):
        return {field.name: field.required for field in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return {
            f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(kind)
        }
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return {name: name not in kind._field_defaults for name in kind._fields}
    if issubclass(kind, enum.Enum):
        return dict.fromkeys(kind.__members__, False)
    return {}


def _function_of(member: Any) -> Any:
    """Return the function of a method, property or fixture; None for what is none."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    found = inspect.unwrap(member) if hasattr(member, "__wrapped__") else member
    return found if inspect.isfunction(found) else getattr(member, "_get_wrapped_function", lambda: None)()


def _method(member: Any) -> dict[str, Any]:
    kinds = {property: "property", classmethod: "class method", staticmethod: "static method"}
    kind = next((name for form, name in kinds.items() if isinstance(member, form)), None)
    function = _function_of(member)
    if kind is None:
        kind = "method" if inspect.isfunction(member) else "fixture"
    found: dict[str, Any] = {"kind": kind, "abstract": getattr(member, "__isabstractmethod__", False)}
    if kind in ("property", "fixture"):
        return found
    waits = inspect.iscoroutinefunction(function)
    parameters = _parameters(function)
    return found | {"waits": waits, "parameters": parameters if kind == "static method" else parameters[1:]}


def _parameters(function: Any) -> list[list[Any]]:
    """Return name, kind, and default (None: there is none) of each parameter."""
    return [
        [found.name, found.kind.description, None if found.default is found.empty else repr(found.default)]
        for found in inspect.signature(function).parameters.values()
    ]


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, list[str]]]:
    yield (
        name,
        sorted(spelling for param in command.params for spelling in (*param.opts, *param.secondary_opts)),
    )
    if isinstance(command, click.Group):
        with click.Context(command, info_name=name) as ctx:
            for below in command.list_commands(ctx):
                found = command.get_command(ctx, below)
                assert found is not None
                yield from _commands(found, f"{name} {below}")


def complaints(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each thing that was promised and is not kept."""
    return [
        *_gone("hook", old["hooks"], new["hooks"]),
        *(
            f"hook {name} does not pass {argument!r} any more: plugins that name it would not load"
            for name in old["hooks"].keys() & new["hooks"].keys()
            for argument in old["hooks"][name]
            if argument not in new["hooks"][name]
        ),
        *_gone("kind of component", old["kinds"], new["kinds"]),
        *_gone("command", old["commands"], new["commands"]),
        *(
            f"command {name!r} does not take {option} any more"
            for name in old["commands"].keys() & new["commands"].keys()
            for option in old["commands"][name]
            if option not in new["commands"][name]
        ),
        *public_http.complaints(old.get("routes", {}), new["routes"]),
        *_gone("public name", old["names"], new["names"]),
        *(
            sentence
            for path in old["names"].keys() & new["names"].keys()
            for sentence in _changed(path, old["names"][path], new["names"][path])
        ),
    ]


def _gone(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{what} {name!r} is gone" for name in old if name not in new)


def _changed(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if "parameters" in old:
        yield from _grown(path, old["parameters"], new.get("parameters", []), exact=False)
    if "methods" not in old:
        return
    yield from (f"{path} is no {base} any more" for base in old["bases"] if base not in new.get("bases", ()))
    for kind in ("fields", "methods", "attributes"):
        for name in old[kind]:
            if not any(name in new.get(other, ()) for other in ("fields", "methods", "attributes")):
                yield f"{path}.{name} is gone"
    if old["fields"] and path not in GIVEN:
        for name, required in new["fields"].items():
            if required and not old["fields"].get(name, False):
                yield f"{path} cannot be made without {name!r} any more: give it a default"
    if "constructor" in old:
        yield from _grown(path, old["constructor"], new.get("constructor", []), exact=path in IMPLEMENTED)
    for name, method in new["methods"].items():
        before = old["methods"].get(name)
        if before is None:
            if method["abstract"] and path in IMPLEMENTED:
                yield f"{path}.{name} is a new abstract method: plugins that lack it cannot be built; give it a body"
            continue
        if method["abstract"] and not before["abstract"] and path in IMPLEMENTED:
            yield f"{path}.{name} has become abstract: plugins that rely on its body cannot be built"
        if (method["kind"], method.get("waits")) != (before["kind"], before.get("waits")):
            yield f"{path}.{name} is called in another way: it was a {before['kind']}, and is a {method['kind']}"
        elif "parameters" in method:
            yield from _grown(
                f"{path}.{name}", before["parameters"], method["parameters"], exact=path in IMPLEMENTED
            )


def _grown(path: str, old: list[list[Any]], new: list[list[Any]], *, exact: bool) -> Iterator[str]:
    """Compare parameters. They may grow by optional ones, positional ones at the end; what plugins implement, not at all."""
    if exact and old != new:
        yield f"{path} takes {_spoken(new)}, and plugins implement {_spoken(old)}: put new data into what it is given"
        return
    places = [found for found in old if found[1].startswith("positional")]
    if new[: len(places)] != places or any(found not in new for found in old):
        yield f"{path} takes {_spoken(new)} and took {_spoken(old)}: calls that worked do not, or mean another thing"
    known = [name for name, _, _ in old]
    for name, kind, default in new:
        if name not in known and default is None and not kind.startswith("variadic"):
            yield f"{path} needs {name!r} now: give it a default"


def _spoken(parameters: list[list[Any]]) -> str:
    return (
        f"({', '.join(name if default is None else f'{name}={default}' for name, _, default in parameters)})"
    )


def is_released(recorded: str) -> bool:
    """Return whether the changelog has a version as one that is out."""
    return f"## {recorded}, not yet released" not in CHANGELOG.read_text("utf-8")


def advice(recorded: str) -> str:
    """Return what is to be done where something was not kept."""
    if not is_released(recorded):
        return f"{recorded} is not released yet: `make surface` records what is so now, if it is meant"
    return (
        f"it was public in {recorded}: keep it, deprecated (docs/compatibility.md), until a version that may drop it; "
        "that version's number goes into pyproject.toml first, and `make surface` then records what is left"
    )


def record() -> None:
    """Write the record anew; what a released version has stays in it as long as the version is the same."""
    new = surface()
    if RECORD.exists():
        old = json.loads(RECORD.read_text("utf-8"))
        broken = complaints(old, new)
        if broken and is_released(old["version"]) and _series(old) == _series(new):
            sys.exit("\n".join([*broken, advice(old["version"])]))
    RECORD.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n", "utf-8")


def _series(recorded: Mapping[str, Any]) -> list[str]:
    """Return what has to change in a version's number before anything may go: of 0.x the second figure, else the first."""
    major, minor, *_ = recorded["version"].split(".")
    return [major, minor] if major == "0" else [major]
