"""Files of results, as `--output` writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from .errors import BenchError
from .report import Figures

VERSION = 1


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]
    version: int = VERSION


def check_output(path: Path) -> None:
    """Raise BenchError if no file can be written there. Call this before a long run. Leaves no new file behind."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise BenchError(f"--output {path} cannot be written: {error.strerror}") from error


def write_results(path: Path, results: list[Figures]) -> None:
    """Write results to a file, and replace its content, which stays if the new one cannot be written as a whole.

    Raises:
        BenchError: the file cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(_Results(results))) + b"\n"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():  # such as /dev/stdout
            path.write_bytes(data)
            return
        try:
            part.write_bytes(data)
            part.replace(path.resolve())
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BenchError(f"--output {path} cannot be written: {error.strerror}") from error


def read_results(path: Path, option: str) -> list[Figures]:
    """Return the results in a file.

    Args:
        option: the command's option that names the file, for errors.

    Raises:
        BenchError: the file cannot be read, or holds no results of this version.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Results)
    except OSError as error:
        raise BenchError(f"{option} {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BenchError(f"{option} {path} has no results of `llmfw bench --output`: {error}") from error
    if found.version != VERSION:
        raise BenchError(
            f"{option} {path} has results of version {found.version}; this llmfw reads {VERSION}"
        )
    for result in found.results:
        if missing := {"workload", "output_tok_s", "runs"} - set(result):
            raise BenchError(f"{option} {path}: a result has no {min(missing)!r}; was the file edited?")
    return found.results
