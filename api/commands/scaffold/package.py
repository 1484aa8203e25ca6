"""Writes a package with one plugin from templates, which are files with placeholders such as `$name`."""

from __future__ import annotations

import keyword
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

from llmfw.core import ConfigError
from llmfw.core.base.about import DISTRIBUTION

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


def write_package(kind: Kind, names: PackageNames, parent: Path) -> Path:
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
        for place, content in package_files(kind, names):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(content)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(f"the package cannot be written to {folder}: {error}") from error
        raise
    return folder


def package_files(kind: Kind, names: PackageNames) -> Iterator[tuple[str, bytes]]:
    """Yield the path (relative to the package's folder) and the content of each file of a package."""
    values = {
        "name": names.component,
        "distribution": names.distribution,
        "module": names.module,
        "file": kind.name,
        "hook": kind.hook,
        "class_name": names.class_stem + kind.class_suffix,
        "function": names.function,
        "summary": kind.summary,
        "description": f"{kind.spoken.capitalize()} for llmfw: {kind.summary}",
        "spoken": kind.spoken,
        "use": kind.use.format(name=names.registered(kind)),
        "checking": f"\n$ llmfw check {kind.name} {names.registered(kind)}",
        "promises": kind.promises,
    }
    own = TEMPLATES / kind.name
    declaration = own / "declaration.txt"
    yield "pyproject.toml", _filled(TEMPLATES / "package" / "pyproject.txt", values)
    yield "README.md", _filled(TEMPLATES / "package" / "readme.txt", values)
    yield ".gitignore", _filled(TEMPLATES / "package" / "gitignore.txt", values)
    yield ".github/workflows/ci.yml", _filled(TEMPLATES / "package" / "ci.txt", values)
    common = TEMPLATES / "package" / "declaration.txt"
    yield f"{names.module}/__init__.py", _filled(declaration if declaration.exists() else common, values)
    yield f"{names.module}/py.typed", b""
    yield f"{names.module}/{kind.name}.py", _filled(own / "component.txt", values)
    for file in sorted((own / "data").rglob("*")):
        if file.is_file():
            yield f"{names.module}/{file.relative_to(own / 'data').as_posix()}", file.read_bytes()
    yield f"tests/test_{kind.name}.py", _filled(own / "test.txt", values)


def _filled(template: Path, values: Mapping[str, str]) -> bytes:
    return Template(template.read_text("utf-8")).substitute(values).encode()
