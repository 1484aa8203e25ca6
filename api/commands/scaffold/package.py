"""Writes a package with a plugin from templates, which are files with placeholders such as `$name`."""

from __future__ import annotations

import functools
import keyword
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from llmfw.core import ConfigError
from llmfw.core.base.about import DISTRIBUTION

from .declaration import add_hook, num_hooks
from .kinds import Kind

TEMPLATES = Path(__file__).with_name("templates")
PREFIX = "llmfw-"
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", re.ASCII)


class PackageNames:
    """The names in a package, derived from the one name that its author chose.

    Args:
        given: name of the component, such as "shortest", or of the package, such as "llmfw-shortest".

    Raises:
        ConfigError: the name cannot name both a package and a Python module, or llmfw uses it.

    Attributes:
        component: name by which users choose the component, and name of the entry point.
        distribution: name of the package for pip.
        module: name of the Python module.
    """

    def __init__(self, given: str) -> None:
        component = given[len(PREFIX) :] if given.startswith((PREFIX, PREFIX.replace("-", "_"))) else given
        if not _NAME.fullmatch(component):
            raise ConfigError(
                f"{given!r} cannot be a plugin's name: use small letters, digits, '-' and '_' between them, and begin "
                "with a letter, as in 'shortest-first'"
            )
        self.component = component
        self.distribution = PREFIX + component.replace("_", "-")
        self.module = self.distribution.replace("-", "_")
        if self.distribution == DISTRIBUTION:
            raise ConfigError(f"{DISTRIBUTION} is the package of llmfw itself; choose another name")

    @property
    def class_stem(self) -> str:
        """Prefix of class names, such as "ShortestFirst"."""
        return "".join(word.capitalize() for word in re.split("[-_]", self.component))

    @property
    def function(self) -> str:
        """Name for a function: the component's name, made a valid identifier."""
        name = self.component.replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name

    def registered(self, kind: Kind) -> str:
        """Return the name with which the component is registered. A request field has no '-' in its name."""
        return self.function if kind.name == "request_field" else self.component


def write_package(kinds: Sequence[Kind], names: PackageNames, parent: Path) -> Path:
    """Write a package into a new folder in `parent`, as a whole or not at all; return the folder.

    Raises:
        ConfigError: a file or folder of that name exists, or the folder cannot be written.
    """
    folder = parent / names.distribution
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError as error:
        raise ConfigError(
            f"{error.filename} is there already, and is left as it is; give another name or --path"
        ) from error
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be made: {error}") from error
    try:
        for place, content in package_files(kinds, names):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(content)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(f"the package cannot be written to {folder}: {error}") from error
        raise
    return folder


def package_files(kinds: Sequence[Kind], names: PackageNames) -> Iterator[tuple[str, bytes]]:
    """Yield the path (relative to the package's folder) and the content of each file of a package.

    Args:
        kinds: kinds of the components in the package, at least one, each at most once.
    """
    values = _package_values(kinds, names)
    yield "pyproject.toml", _filled(TEMPLATES / "package" / "pyproject.txt", values)
    yield "README.md", _filled(TEMPLATES / "package" / "readme.txt", values)
    yield ".gitignore", _filled(TEMPLATES / "package" / "gitignore.txt", values)
    yield ".github/workflows/ci.yml", _filled(TEMPLATES / "package" / "ci.txt", values)
    yield f"{names.module}/__init__.py", functools.reduce(add_hook, declarations(kinds, names)).encode()
    yield f"{names.module}/py.typed", b""
    for kind in kinds:
        yield from component_files(kind, names)


def declarations(kinds: Sequence[Kind], names: PackageNames) -> list[str]:
    """Return the source of one module per kind, sorted by the number of hooks that the module implements."""
    return sorted((declaration(kind, names) for kind in kinds), key=num_hooks)


def declaration(kind: Kind, names: PackageNames) -> str:
    """Return the text of a module that declares one component, command or route."""
    folders = (TEMPLATES / kind.name / kind.variant, TEMPLATES / kind.name, TEMPLATES / "package")
    found = next(file for folder in folders if (file := folder / "declaration.txt").exists())
    return _filled(found, _values(kind, names)).decode()


def component_files(kind: Kind, names: PackageNames) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file that a package has for one kind, except the declaration."""
    own, values = TEMPLATES / kind.name / kind.variant, _values(kind, names)
    yield f"{names.module}/{kind.name}.py", _filled(own / "component.txt", values)
    for file in sorted((own / "data").rglob("*")):
        if file.is_file():
            yield f"{names.module}/{file.relative_to(own / 'data').as_posix()}", file.read_bytes()
    yield f"tests/test_{kind.name}.py", _filled(own / "test.txt", values)


def _values(kind: Kind, names: PackageNames) -> dict[str, str]:
    """Return the values of the placeholders in the templates of one kind."""
    return {
        "name": names.component,
        "distribution": names.distribution,
        "module": names.module,
        "file": kind.name,
        "hook": kind.hook,
        "class_name": names.class_stem + kind.class_suffix,
        "function": names.function,
        "summary": kind.summary,
    }


def _package_values(kinds: Sequence[Kind], names: PackageNames) -> dict[str, str]:
    """Return the values of the placeholders in the templates of a package."""
    name = names.component
    if len(kinds) == 1:
        description = f"{kinds[0].spoken.capitalize()} for llmfw: {kinds[0].summary}"
        brings = f"{kinds[0].with_article.capitalize()} for llmfw: {kinds[0].summary}."
    else:
        spoken = " and ".join([", ".join(kind.spoken for kind in kinds[:-1]), kinds[-1].spoken])
        description = f"{spoken.capitalize()} for llmfw"
        brings = "For llmfw:\n\n" + "\n".join(
            f"- {kind.with_article.capitalize()}: {kind.summary}" for kind in kinds
        )
    return {
        "name": name,
        "distribution": names.distribution,
        "module": names.module,
        "description": description,
        "brings": brings,
        "uses": "\n".join(f"$ {kind.use.format(name=names.registered(kind))}" for kind in kinds),
        "checks": "\n".join(
            f"$ llmfw check {kind.name} {names.registered(kind)} {kind.check.format(name=names.registered(kind))}".rstrip()
            for kind in kinds
        ),
        "files": "\n".join(
            f"- `{names.module}/{kind.name}.py` is the {kind.spoken}.\n"
            f"- `tests/test_{kind.name}.py` holds it to {kind.promises}."
            for kind in kinds
        ),
    }


def _filled(template: Path, values: Mapping[str, str]) -> bytes:
    return Template(template.read_text("utf-8")).substitute(values).encode()
