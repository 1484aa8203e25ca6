"""A flag that a message, a docstring or a page names is one that a command has."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path

import click

from llmfw.api.cli import build_cli
from llmfw.api.settings.other_servers_flags import foreign_flags

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]+")
SOURCES = [path for room in ("api", "core", "plugins") for path in sorted((ROOT / room).rglob("*.py"))]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
# Names of other programs' options, by the file that has them.
OTHERS = {
    "api/checks/component_check.py": {"--rootdir", "--basetemp", "--capture", "--import-mode"},  # pytest's
    "api/commands/batch/submit.py": {"--completion-window"},  # the name of OpenAI's field
    "api/llmfw_engine.py": {"--yes"},  # pip's
    "api/settings/other_servers_flags.py": {flag for flags, _ in foreign_flags() for flag in flags},
    "api/server/announcement.py": {"--unix-socket"},  # curl's
    "core/model/files/model_folder.py": {"--local-dir"},  # that of `hf download`, and the next three
    "core/model/weights/weight_choice.py": {"--local-dir"},
    "core/plugin/model_name.py": {"--local-dir", "--revision"},
    "docs/clients.md": {
        *("--batch_size", "--model_args", "--apply_chat_template"),  # lm-evaluation-harness's
        *("--openai-api-base", "--openai-api-key"),  # aider's
    },
    "docs/deploy.md": {"--build-arg", "--gpus", "--volume"},  # docker's
    "docs/gguf.md": {"--merge"},  # llama-gguf-split's
    "plugins/weights_gguf/served_files.py": {"--merge"},
    "plugins/cpu_native/build.py": {"--install"},  # xcode-select's
}


@cache
def flags_of_commands() -> frozenset[str]:
    """Every option of every command, and `--help`."""
    found = {"--help"}
    with click.Context(build_cli()) as ctx:
        waiting: list[click.Command] = [ctx.command]
        while waiting:
            command = waiting.pop()
            for param in command.params:
                found.update(param.opts, param.secondary_opts)
            if isinstance(command, click.Group):
                commands = (command.get_command(ctx, name) for name in command.list_commands(ctx))
                waiting += [command for command in commands if command is not None]
    return frozenset(found)


@cache
def flags_of_scripts() -> frozenset[str]:
    """What the scripts that pages name declare for themselves."""
    scripts = chain((ROOT / "docs").rglob("*.py"), (ROOT / "plugins").rglob("*.py"))
    return frozenset(chain.from_iterable(declared(script.read_text("utf-8")) for script in scripts))


def declared(source: str) -> set[str]:
    return set(re.findall(r'\b(?:add|add_argument|option)\(\s*"(--[\w-]+)"', source))


def test_sources_name_existing_flags() -> None:
    wrong = {}
    for path in SOURCES:
        source = path.read_text("utf-8")
        wrong[path] = unknown(path, set(FLAG.findall(source))) - declared(source)
    assert not {path: flags for path, flags in wrong.items() if flags}


def test_pages_name_existing_flags() -> None:
    wrong = {}
    for path in PAGES:
        text = path.read_text("utf-8")
        if path.name == "coming_from.md":  # the first column of its tables has other programs' options
            text = re.sub(r"^\|[^|]*\|", "", text, flags=re.MULTILINE)
        named = set(re.findall(r"`(--[a-z][\w-]+)", text))
        wrong[path] = unknown(path, named) - flags_of_scripts()
    assert not {path: flags for path, flags in wrong.items() if flags}


def unknown(path: Path, named: set[str]) -> set[str]:
    return named - flags_of_commands() - OTHERS.get(str(path.relative_to(ROOT)), set())
