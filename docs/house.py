"""Which rooms core and api have, and which of them import each other, as the source says it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
Parts = tuple[str, ...]


@functools.cache
def imported(path: Path, root: Path = ROOT) -> tuple[tuple[int, bool, Parts], ...]:
    """Return line, whether it is relative, and the module's parts below llmfw, of each import of ours in a file.

    A folder that is imported by its bare name, as `core`, gives "bare" and the name.
    """
    return tuple(_imports(path, root))


def _imports(path: Path, root: Path) -> Iterator[tuple[int, bool, Parts]]:
    package = path.relative_to(root).parts[:-1]
    for node in _statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            yield node.lineno, True, (*base, *(node.module or "").split("."))
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
            for name in names:
                top, *rest = name.split(".")
                if top == "llmfw" and rest:
                    yield node.lineno, False, tuple(rest)
                elif top in ("api", "core", "plugins"):
                    yield node.lineno, False, ("bare", name)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, and those in them. There are ten times as many nodes in all."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def graph(folder: str) -> dict[Parts, set[Parts]]:
    """Return the rooms of "core" or "api", each with those that it imports. In core, folders of folders are rooms, too."""
    found: dict[Parts, set[Parts]] = {}
    for path in (ROOT / folder).rglob("*.py"):
        room = path.relative_to(ROOT).parts[: -1 if folder == "core" else 2]
        imports = found.setdefault(room, set())
        for _, _, target in imported(path):
            while not ROOT.joinpath(*target).is_dir():
                target = target[:-1]
            if folder != "core":
                target = target[:2]
            if target[0] == folder and target != room:
                imports.add(target)
    return found


def rooms(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each room, as "step/logits", and the rooms that it imports; each comes after those.

    Raises:
        CycleError: rooms import each other in a ring.
    """
    found = {room: imports for room, imports in graph(folder).items() if len(room) > 1 and _has_modules(room)}
    below = {room: sorted(imports & found.keys()) for room, imports in sorted(found.items())}
    for room in TopologicalSorter(below).static_order():
        yield "/".join(room[1:]), ["/".join(target[1:]) for target in below[room]]


def _has_modules(room: Parts) -> bool:
    return any(path.name != "__init__.py" for path in ROOT.joinpath(*room).glob("*.py"))


def purpose(folder: str, room: str) -> str:
    """Return the first line of what a room says of itself."""
    text = ast.get_docstring(ast.parse((ROOT / folder / room / "__init__.py").read_text("utf-8"))) or ""
    return text.partition("\n")[0]
