"""Builds the shared library of the native code, once per machine, compiler and version of the sources.

What was built stands in the user's cache folder under a hash of all that went into it, so another compiler, another
CPU or changed sources make another library, and nothing has to be thrown away. Two processes may build at once: each
writes a file of its own and renames it. Knows nothing of what is in the library.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-ffp-contract=fast",  # a product and a sum in one instruction, as everybody else's kernels have it
    "-fno-math-errno",
    "-fvisibility=default",
    "-Wno-psabi",
)
NATIVE = ("-march=native",)
TIMEOUT_S = 300
HOW_TO_GET_ONE = (
    "install one (apt install g++, dnf install gcc-c++, xcode-select --install), or name it by CXX"
)


class BuildError(Exception):
    """There is no library; the message says why, and what to do."""


def build_library(
    flags: Sequence[str] = NATIVE, environment: Mapping[str, str] | None = None, sources: Path = SOURCES
) -> Path:
    """Return the path of the library, which is built if it is not there.

    Args:
        flags: for the machine that it is to run on.
        environment: CXX, XDG_CACHE_HOME and PATH are read; None: the process's.
        sources: folder of the C++ files, all of which go into one library.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    environment = os.environ if environment is None else environment
    compiler = find_compiler(environment)
    files = sorted(sources.glob("*.cpp"))
    key = _key([*compiler, *FLAGS, *flags], sources, environment)
    path = cache_folder(environment) / f"native-{key}.so"
    if path.exists():
        return path
    started = time.perf_counter()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            _compile([*compiler, *FLAGS, *flags], files, made, environment)
            made.replace(path)
    except OSError as error:
        raise BuildError(f"the native code cannot be built in {path.parent}: {error}") from error
    logger.info("Built native code. path=%s, elapsed=%.1f s", path, time.perf_counter() - started)
    return path


def find_compiler(environment: Mapping[str, str]) -> list[str]:
    """Return the command of the C++ compiler, with what CXX says beside its name."""
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
    """Return where libraries are kept."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environment.get("HOME") or Path.home()) / ".cache") / "llmfw"


def _compile(
    command: Sequence[str], files: Sequence[Path], made: Path, environment: Mapping[str, str]
) -> None:
    """Compile each file in a process of its own, at the same time, then link them."""
    objects = [made.parent / f"{file.stem}.o" for file in files]
    running = [
        subprocess.Popen(
            [*command, "-c", str(file), "-o", str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(environment),
        )
        for file, target in zip(files, objects, strict=True)
    ]
    outputs = [_output_of(process) for process in running]
    link = [*command, *map(str, objects), "-o", str(made)]
    if not any(outputs):
        done = subprocess.run(
            link, capture_output=True, text=True, errors="replace", env=dict(environment), check=False
        )
        outputs = [done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else ""]
    for output in filter(None, outputs):
        errors = [line for line in output.splitlines() if "error" in line.lower()]
        line = (errors or output.splitlines())[0]
        raise BuildError(f"{command[0]} cannot build the native code: {line.strip()}; {HOW_TO_GET_ONE}")


def _output_of(process: subprocess.Popen[str]) -> str:
    """Return what a compiler said if it failed, else nothing."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it takes more than {TIMEOUT_S} s"
    if process.returncode == 0:
        return ""
    return output.strip() or f"exit status {process.returncode}"


def _key(command: Sequence[str], sources: Path, environment: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    asked = subprocess.run(
        [command[0], "--version"], capture_output=True, env=dict(environment), check=False, timeout=60
    )
    parts = [" ".join(command).encode(), asked.stdout, _cpu().encode()]
    for file in sorted([*sources.glob("*.cpp"), *sources.glob("*.h")]):
        parts += [file.name.encode(), file.read_bytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:20]


def _cpu() -> str:
    """Return what tells this CPU from another one that would need another library."""
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
