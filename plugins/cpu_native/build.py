"""Builds shared libraries of native code, once per machine, compiler and version of the sources.

A library is cached in the user's cache folder under a hash of all its inputs. So another compiler, another
CPU or changed sources get another library, and no library ever becomes invalid. Only one process builds at a
time. A process that had to wait uses the library if it has been built meanwhile. This module does not depend
on the libraries' content.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++20",
    "-fPIC",
    "-shared",
    "-pthread",
    "-ffp-contract=fast",  # fused multiply-add, as in other kernel libraries
    "-fno-math-errno",
    "-fvisibility=default",
    "-Wno-psabi",
)
BUILDING = "building-"
"""Prefix of the temporary folders in which builds run."""
TIMEOUT_S = 300
HOW_TO_GET_ONE = (
    "install one (apt install g++, dnf install gcc-c++, xcode-select --install), or name it by CXX"
)


class BuildError(Exception):
    """A library cannot be built; the message says why and what to do."""


class Unit(NamedTuple):
    """A compilation unit: source files compiled as one, so that common headers are read only once.

    Attributes:
        files: names of the files, in order.
        flags: additional compiler flags for this unit.
    """

    files: tuple[str, ...]
    flags: tuple[str, ...] = ()


def build_library(
    flags: Sequence[str],
    environment: Mapping[str, str] | None = None,
    sources: Path = SOURCES,
    units: Sequence[Unit] | None = None,
) -> Path:
    """Return the path of a library; build it first if it does not exist.

    Args:
        flags: compiler flags for the target machine, and flags that select the library's content.
        environment: environment variables (CXX, XDG_CACHE_HOME, HOME, PATH); None: those of this process.
        sources: folder of the C++ files.
        units: compilation units of the library; None: one per file of the folder.

    Raises:
        BuildError: no compiler was found, or the build fails.
    """
    environment = os.environ if environment is None else environment
    compiler = find_compiler(environment)
    if units is None:
        units = [Unit((file.name,)) for file in sorted(sources.glob("*.cpp"))]
    command = [*compiler, *FLAGS, *flags]
    path = cache_folder(environment) / f"native-{_key(command, units, sources, environment)}.so"
    if path.exists():
        return path
    started = time.perf_counter()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _turn_in(path.parent):
            if path.exists():  # another process has built it meanwhile
                return path
            logger.info("Building native code for this CPU, once.")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=BUILDING) as folder:
                made = Path(folder) / path.name
                _compile(command, units, sources, made, environment)
                made.replace(path)
    except OSError as error:
        raise BuildError(f"the native code cannot be built in {path.parent}: {error}") from error
    logger.info("Built native code. path=%s, elapsed=%.1f s", path, time.perf_counter() - started)
    return path


def find_compiler(environment: Mapping[str, str]) -> list[str]:
    """Return the C++ compiler's command, including any arguments in CXX.

    Raises:
        BuildError: no compiler was found.
    """
    search = environment.get("PATH", os.defpath)
    if asked := shlex.split(environment.get("CXX", "")):
        if shutil.which(asked[0], path=search) is None:
            raise BuildError(f"CXX names {asked[0]!r}, which is not there; unset it, or {HOW_TO_GET_ONE}")
        return asked
    for name in COMPILERS:
        if shutil.which(name, path=search) is not None:
            return [name]
    raise BuildError(f"there is no C++ compiler ({', '.join(COMPILERS)}); {HOW_TO_GET_ONE}")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in which built libraries are cached."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environment.get("HOME") or Path.home()) / ".cache") / "llmfw"


@contextlib.contextmanager
def _turn_in(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, so that only one process builds there; remove folders of killed builds.

    On a file system without locks, processes may build at the same time, each in its own temporary folder.
    """
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            yield
            return
        for left in folder.glob(f"{BUILDING}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(lock)


def _compile(
    command: Sequence[str], units: Sequence[Unit], sources: Path, made: Path, environment: Mapping[str, str]
) -> None:
    """Compile the units in parallel, one process each, and link them into the file `made`.

    Raises:
        BuildError: compiling or linking fails.
    """
    objects, running = [], []
    for i, unit in enumerate(units):
        source, target = made.parent / f"{i}.cpp", str(made.parent / f"{i}.o")
        source.write_text("".join(f'#include "{sources / file}"\n' for file in unit.files))
        objects.append(target)
        running.append(_start([*command, *unit.flags, "-c", str(source), "-o", target], environment))
    outputs = [_output_of(process) for process in running]
    link = [*command, *objects, "-o", str(made)]
    if not any(outputs):
        outputs = [_output_of(_start(link, environment))]
    for output in filter(None, outputs):
        errors = [line for line in output.splitlines() if "error:" in line.lower()]
        line = (errors or output.splitlines())[0]
        raise BuildError(f"{command[0]} cannot build the native code: {line.strip()}; {HOW_TO_GET_ONE}")


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=dict(environment),
    )


def _output_of(process: subprocess.Popen[str]) -> str:
    """Wait for a compiler process; return its output if it fails, else ""."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it takes more than {TIMEOUT_S} s"
    if process.returncode == 0:
        return ""
    return output.strip() or f"exit status {process.returncode}"


def _key(command: Sequence[str], units: Sequence[Unit], sources: Path, environment: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    asked = subprocess.run(
        [command[0], "--version"], capture_output=True, env=dict(environment), check=False, timeout=60
    )
    parts = [" ".join(command).encode(), repr(units).encode(), asked.stdout, _cpu().encode()]
    for file in sorted([*sources.glob("*.cpp"), *sources.glob("*.h")]):
        parts += [file.name.encode(), file.read_bytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:20]


def _cpu() -> str:
    """Return this CPU's properties that affect what the compiler generates, as text."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = (
        "vendor_id",
        "cpu family",
        "model\t",
        "model name",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
    )
    return "\n".join(sorted({line for line in lines if line.startswith(names)}))
