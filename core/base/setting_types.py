"""Types of settings that several settings share, and settings of both processes."""

# Annotations are not postponed, as in `config`.
from typing import Annotated, Any, Literal

import msgspec

from .setting import Setting

OptionValue = str | int | float | bool | list[Any] | dict[str, Any]
"""Value of a component's option. Strings are converted to the type that the component declares; other values
must have that type."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
AboveZero = Annotated[float, msgspec.Meta(gt=0)]

# fmt: off
TENANT_NAME = r"[A-Za-z0-9._@-]{1,64}"
TenantName = Annotated[str, msgspec.Meta(
    pattern=rf"^{TENANT_NAME}\Z", title="name of at most 64 letters, digits and characters of ._@-")]
DeviceName = Annotated[str, msgspec.Meta(
    pattern=r"^(auto|[a-z]+(:\d+)?)\Z", title="device, such as auto, cpu, cuda or cuda:1")]
Ranks = Annotated[Annotated[int, msgspec.Meta(ge=1, le=64)], Setting(
    "Number of processes, on CPUs, that compute the model together, each with a part of the weights and of the KV cache.",
    aliases=("--tp-size", "--tensor-parallel-size"))]

# Settings of both processes.
Grammar = Annotated[str, Setting(
    "Backend of structured output; auto: the best installed one. none rejects requests for it.",
    aliases=("--grammar-backend",), kind="grammar", words=("auto", "none"))]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], Setting(
    "Least severe messages to log; debug also shows tracebacks.")]
LogFormat = Annotated[Literal["text", "json"], Setting(
    "Format of the log: lines of text for people, or a JSON object on each line.")]
LogFile = Annotated[str | None, Setting(
    "Append the log to this file. It may be moved away while the server runs, as log rotation does.",
    unset="the log goes to standard error", metavar="FILE")]
ComponentOptions = Annotated[dict[str, OptionValue], Setting(
    "Set an option of a chosen component, as in attention.workspace_mb=256; repeatable.",
    flag="-o", aliases=("--option",), unset="the component's own", metavar="KIND.KEY=VALUE", group="Plugins",
    is_local=True)]
DisabledPlugins = Annotated[tuple[str, ...], Setting(
    "Do not load this plugin; repeatable.", flag="--no-plugin", unset="all installed plugins are loaded", metavar="NAME")]
