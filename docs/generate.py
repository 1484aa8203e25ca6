"""Writes anew the parts of docs/ that are made from the code: `make docs`. With --check, only says which are stale.
With --surface, records what is public, too: `make surface`.

A part stands between two comments, `<!-- made: NAME -->` and `<!-- end -->`. Only bundled plugins are looked at,
so that the result does not depend on what else is installed.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import house
import msgspec
import public
import stubs

from llmfw.api.cli import build_cli
from llmfw.api.commands.scaffold.kinds import KINDS
from llmfw.api.commands.scaffold.package import PackageNames, package_files
from llmfw.api.schemas.refusals import REFUSALS
from llmfw.api.settings.option import SettingOption
from llmfw.api.settings.options import setting_options
from llmfw.api.settings.other_servers_flags import PROGRAMS, foreign_flags
from llmfw.core.base.allowed_values import choices_of, in_words, kind_of
from llmfw.core.plugin.hookspecs import HOOK_NAMES
from llmfw.core.plugin.plugins import load_plugins

DOCS = Path(__file__).parent
PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = 100
FLAG = re.compile(
    r"--[a-z][\w-]+( (off|N|-1|cuda|embed|priority|prompt-lookup|warning)\b)?|HF_HOME|generation_config\.json"
)


def commands() -> str:
    """Return a section for each command, with its help as it is printed."""
    return "\n".join(_sections(build_cli(), "llmfw"))


def _sections(command: click.Command, name: str) -> Iterator[str]:
    """Yield the sections of a command and, if it is a group, of all that are below it."""
    yield _help(command, name)
    if isinstance(command, click.Group):
        with click.Context(command, info_name=name) as ctx:
            for below in command.list_commands(ctx):
                found = command.get_command(ctx, below)
                assert found is not None
                yield from _sections(found, f"{name} {below}")


def _help(command: click.Command, name: str) -> str:
    ctx = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    ctx.help_option_names = ["-h", "--help"]
    with ctx:
        return f"## {name}\n\n```text\n{command.get_help(ctx)}\n```\n"


def settings() -> str:
    """Return a table of the settings of `llmfw serve` for each heading of its help."""
    found: dict[str, list[str]] = {}
    for option in setting_options():
        if not option.setting.is_local:
            found.setdefault(option.group, []).append(_setting_row(option))
    head = ["| key | values | default | what it does |", "|---|---|---|---|"]
    return "\n".join("\n".join([f"### {group}", "", *head, *rows, ""]) for group, rows in found.items())


def flags_of(program: str) -> str:
    """Return a table of another server's options, and what to use here."""
    rows = []
    for flags, here in foreign_flags(program):
        names = ", ".join(f"`{flag}`" for flag in flags)
        rows.append(f"| {names} | {FLAG.sub(lambda found: f'`{found[0]}`', here)} |")
    return "\n".join([f"| {program} | llmfw |", "|---|---|", *rows, ""])


def _setting_row(option: SettingOption) -> str:
    shown = option.setting.unset or ("false" if option.is_flag else f"`{option.default}`")
    return f"| `{option.key}` | {_values_of(option)} | {shown} | {option.setting.help} |"


def _values_of(option: SettingOption) -> str:
    declared, kind = option.declared, kind_of(option.declared.annotation)
    if option.is_flag:
        return "`true`, `false`"
    if option.setting.kind:
        words = "".join(f", `{word}`" for word in option.setting.words)
        return f"name of a `{option.setting.kind}`{words}"
    if choices := choices_of(declared.annotation):
        return ", ".join(f"`{choice}`" for choice in choices)
    if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return in_words(kind)
    return f"list of {option.metavar}" if option.multiple else option.metavar or "text"


def components() -> str:
    """Return a table of the bundled components, by hook."""
    return "\n".join(
        ["| hook | component | plugin | what it is |", "|---|---|---|---|", *_component_rows(), ""]
    )


def _component_rows() -> Iterator[str]:
    plugins = load_plugins()
    for kind, hook in HOOK_NAMES.items():
        for entry in plugins.registry.entries(kind):
            yield f"| `{hook}` | `{entry.name}` | `{entry.plugin}` | {entry.summary} |"
    for plugin in plugins.loaded:
        for command in plugin.commands:
            about = command.get_short_help_str(limit=WIDTH)
            yield f"| `register_commands` | `{command.name}` | `{plugin.name}` | {about} |"


def interface(kind: str) -> str:
    """Return what a kind of component has to implement, and what it is given, as code without bodies."""
    return "\n".join(stubs.stubs(*SHOWN[kind]))


def example(kind: str) -> str:
    """Return the file that does the work in a package which `llmfw plugin new example` writes.

    A command's declaration belongs to it: there the arguments are.
    """
    files = dict(package_files([KINDS[kind]], PackageNames("example")))
    places = [f"llmfw_example/{name}.py" for name in (("__init__", kind) if kind == "command" else (kind,))]
    return "\n".join(f"`{place}`\n\n```python\n{files[place].decode()}```\n" for place in places)


def public_names() -> str:
    """Return a table of what plugins may import."""
    rows = (
        f"| `{module}` | {', '.join(f'`{name}`' for name in names)} |"
        for module, names in public.PUBLIC.items()
    )
    return "\n".join(["| module | names |", "|---|---|", *rows, ""])


def rooms() -> str:
    """Return a table of the rooms of core: what is in each, and which rooms it imports; the ground floor first."""
    rows = (
        f"| `{room}` | {house.purpose('core', room)} | {', '.join(f'`{below}`' for below in imports) or 'none'} |"
        for room, imports in house.rooms("core")
    )
    return "\n".join(["| room | what is in it | rooms that it imports |", "|---|---|---|", *rows, ""])


def refusals() -> str:
    """Return a table of the fields that text routes refuse unless they honor them."""
    rows = (
        f"| `{name}` | {', '.join(f'`{msgspec.json.encode(value).decode()}`' for value in each.neutral)}"
        f"{'; any without ' * bool(each.tunes)}{', '.join(f'`{tuned}`' for tuned in each.tunes)} | "
        f"{', '.join(f'`{use}`' for use in each.use) or each.why} |"
        for name, each in sorted(REFUSALS.items())
    )
    head = ("| field | passes, besides null | fields that do it, or why it is refused |", "|---|---|---|")
    return "\n".join([*head, *rows, ""])


SHOWN: dict[str, tuple[str, ...]] = {
    "attention": (
        "llmfw.core:AttentionBackend",
        "llmfw.core:LayerSpec",
        "llmfw.core:ForwardBatch",
        "llmfw.core:KVStorage",
    ),
    "module_pass": ("llmfw.core:ModulePass",),
    "token_sampler": ("llmfw.core:TokenSampler", "llmfw.core:RowNumbers", "llmfw.core:Filters"),
    "policy": (
        "llmfw.core:SchedulePolicy",
        "llmfw.core:Ordering",
        "llmfw.core:Waiting",
        "llmfw.core:Running",
        "llmfw.core:Figures",
        "llmfw.core:Places",
        "llmfw.core.testing.policy_views:make_waiting",
        "llmfw.core.testing.policy_views:make_running",
        "llmfw.core.testing.policy_views:make_figures",
    ),
    "chat_template": ("llmfw.core:ChatTemplate", "llmfw.core:Message"),
    "file_store": (
        "llmfw.core:FileStore",
        "llmfw.core:FileRecord",
        "llmfw.core:Describe",
    ),
    "batch_store": tuple(
        f"llmfw.core:{name}"
        for name in (
            "BatchStore",
            "BatchResults",
            "BatchRecord",
            "BatchError",
            "BatchUsage",
            "LineResult",
            "ENDED",
        )
    ),
    "response_store": ("llmfw.core:ResponseStore", "llmfw.core:ResponseRecord"),
    "grammar": (
        "llmfw.core:GrammarBackend",
        "llmfw.core:Grammar",
        "llmfw.core:GrammarSpec",
        "llmfw.core:Tokenizer",
    ),
    "drafter": ("llmfw.core:Drafter", "llmfw.core:SequenceDrafter", "llmfw.core:DraftedRequest"),
    "authenticator": tuple(
        f"llmfw.core:{name}"
        for name in ("Authenticator", "Credentials", "Principal", "TenantLimits", "Refusal")
    ),
    "middleware": ("llmfw.core:HTTPMiddleware",),
    "request_field": ("llmfw.core:RequestField",),
    "eviction": ("llmfw.core:EvictionRule", "llmfw.core:CacheLeaf"),
    "media_processor": (
        "llmfw.core:MediaProcessor",
        "llmfw.core:Image",
        "llmfw.core:MediaPrompt",
        "llmfw.core:MediaSpan",
        "llmfw.core:MediaArray",
    ),
    "router": ("llmfw.core:Router", "llmfw.core:RoutedRequest", "llmfw.core:ReplicaView"),
    "adapter_source": ("llmfw.core:AdapterSource",),
    "logits_processor": (
        "llmfw.core:LogitsProcessor",
        "llmfw.core:ProcessedRows",
        "llmfw.core:ProcessedRequest",
        "llmfw.core:ProcessorContext",
    ),
    "weight_loader": ("llmfw.core:WeightLoader", "llmfw.core:StoredTensor"),
    "quantization_scheme": ("llmfw.core:QuantizationScheme", "llmfw.core:LinearLayer"),
    "quantized_format": ("llmfw.core:QuantizedFormat", "llmfw.core:StoredLayer"),
    "model_adapter": ("llmfw.core:ModelAdapter", "llmfw.core:Attend"),
    "observer": (
        "llmfw.core:RequestObserver",
        "llmfw.core:RequestStarted",
        "llmfw.core:RequestFirstToken",
        "llmfw.core:RequestEnded",
    ),
    "tool_parser": tuple(
        f"llmfw.core:{name}" for name in ("ToolParser", "ContentDelta", "ToolCallDelta", "CallFormat")
    ),
    "reasoning_parser": tuple(
        f"llmfw.core:{name}" for name in ("ReasoningParser", "ReasoningDelta", "ContentDelta", "MessageMarks")
    ),
    "model": ("llmfw.core:ModelSource",),
    "route": (
        "llmfw.core:EngineClient",
        "llmfw.core:EngineInfo",
        "llmfw.core:EngineStats",
        "llmfw.core:TokenEvent",
        "llmfw.core:ServerConfig",
        "llmfw.core:ServerAPI",
        "llmfw.core:RouteServices",
        "llmfw.core:CallerFiles",
        "llmfw.core:Caller",
        "llmfw.core:GeneratedText",
        "llmfw.core:TextPiece",
        "llmfw.core:Embeddings",
        "llmfw.core:Scores",
        "llmfw.core:ContinuationScore",
        "llmfw.core:Classifications",
        "llmfw.core:ServedModel",
        "llmfw.core:Failure",
        "llmfw.core:describe",
        "llmfw.core:Operation",
    ),
    "command": ("llmfw.core:LazyCommand",),
    "request": ("llmfw.core:Request", "llmfw.core:SamplingParams"),
}
"""What docs/interfaces.md shows in each of its sections."""

MAKERS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "components": components,
    "settings": settings,
    **{
        f"flags_{re.sub(r'[^a-z]', '_', name.lower())}": functools.partial(flags_of, name)
        for name in PROGRAMS
    },
    "public_names": public_names,
    "refusals": refusals,
    "rooms": rooms,
    "errors": lambda: f"```text\n{stubs.tree('llmfw.core.base.errors')}\n```\n",
    "grammar_kinds": lambda: f"```text\n{stubs.docstring('llmfw.core.interfaces.grammar')}\n```\n",
    **{f"interface_{kind}": functools.partial(interface, kind) for kind in SHOWN},
    **{f"example_{kind}": functools.partial(example, kind) for kind in KINDS},
}


def made_anew(text: str) -> str:
    """Return a page with its made parts replaced."""
    return PART.sub(lambda match: match[1] + MAKERS[match[2]]() + match[3], text)


def main() -> None:
    """Write the pages, or with --check exit with 1 if one of them is stale."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    os.environ["LLMFW_PLUGINS"] = ",".join(project["entry-points"]["llmfw"])
    if "--surface" in sys.argv:
        public.record()
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        old = page.read_text("utf-8")
        new = made_anew(old)
        if new != old:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new, "utf-8")
    if stale:
        print("stale:" if "--check" in sys.argv else "written:", ", ".join(stale))
    sys.exit("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    main()
