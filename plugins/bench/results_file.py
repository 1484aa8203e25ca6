"""Files of results, as `--output` writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .errors import BenchError
from .report import Figures

VERSION = 1


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]
    version: int = VERSION


class _Compared(msgspec.Struct, kw_only=True):
    """What tables, comparisons and plots read of a result and of each of its runs."""

    output_tok_s: float
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p99_ms: float | None = None
    goodput_rps: float | None = None
    requests_s: float | None = None
    timeline: list[dict[str, float | None]] = []


class _Shown(_Compared, kw_only=True):
    """What they read of a result in addition."""

    workload: str
    rate: float | None = None
    wall_s: float
    requests: float
    failed: float
    short: float
    prompt_tokens: float | None
    output_tokens: float | None
    cached_tokens: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    runs: Annotated[list[_Compared], msgspec.Meta(min_length=1)]


def check_output(path: Path) -> None:
    """Raise BenchError if no file can be written there. Call this before a long run. Leaves no new file behind."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.resolve().unlink()
        if is_new or path.is_file():
            part = _part_of(path.resolve())
            with part.open("ab"):
                pass
            part.unlink()
    except OSError as error:
        raise BenchError(f"--output {path} cannot be written: {error.strerror}") from error


def write_results(path: Path, results: list[Figures]) -> None:
    """Write results to a file and replace its content. If that fails, the old content stays.

    Raises:
        BenchError: the file cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(_Results(results))) + b"\n"
    try:
        if path.exists() and not path.is_file():  # such as /dev/stdout
            path.write_bytes(data)
            return
        target = path.resolve()
        part = _part_of(target)
        try:
            part.write_bytes(data)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BenchError(f"--output {path} cannot be written: {error.strerror}") from error


def _part_of(target: Path) -> Path:
    """Return the file that is written first and then renamed. It is in the folder of the target itself."""
    return target.with_name(f"{target.name}.{os.getpid()}.part")


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
    for number, result in enumerate(found.results, 1):
        try:
            msgspec.convert(result, _Shown)
        except msgspec.ValidationError as error:
            raise BenchError(f"{option} {path}: result {number}: {error}; was the file edited?") from error
    return found.results
