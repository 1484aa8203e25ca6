"""Mutation testing: plants mistakes in bundled components, one at a time, and counts those that their tests find.

    python -m tests.mutation.run policies eviction --most 40 --own

Each mutant is tried in a forked process, so that torch and pytest are imported once. A mutant is killed if a test fails, if
the tests cannot be collected, or if they take longer than the limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from .mutants import Mutant, mutants
from .targets import ROOT, TARGETS, Target

TESTS = "tests/plugins"
UNREWRITTEN = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"


class Trial(msgspec.Struct, frozen=True):
    """A mutant that was tried.

    Attributes:
        kit, own: "killed", "survived" or "timeout", by the conformance tests and by the package's own; `own` is empty
            where the kit has killed it, or where the own tests were not asked for.
    """

    module: str
    line: int
    change: str
    kit: str
    own: str = ""


class MutatedFinder(MetaPathFinder, Loader):
    """Imports one module from a changed source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)  # noqa: S102


def outcome(
    package: str, path: Path, source: str, tests: Sequence[str], limit_s: float, only: str = ""
) -> str:
    """Run tests against a module's source in a forked process.

    Args:
        tests: ids of tests, relative to the tests of bundled packages.
        limit_s: seconds after which the process is ended.
        only: as in `Target`.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_run(package, path, source, tests, only))
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return SURVIVED if status == 0 else KILLED
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMEOUT


def _run(package: str, path: Path, source: str, tests: Sequence[str], only: str) -> int:
    """Run tests in this process, with the module replaced; return pytest's exit status."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for name in [each for each in sys.modules if each.startswith(f"llmfw.plugins.{package}")]:
        del sys.modules[name]
    sys.meta_path.insert(0, MutatedFinder(f"llmfw.plugins.{package}.{path.stem}", path, source))
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "unshrunk", *UNREWRITTEN]
    options += ["-k", only] if only else []
    return int(pytest.main([*options, *(f"{TESTS}/{test}" for test in tests)]))


def try_package(
    package: str, most: int, own: bool, limit_s: float, seed: int, skip: int = 0
) -> Iterator[Trial]:
    """Try a package's mutants, and yield each trial.

    Args:
        most: number of mutants to try, chosen at random where there are more.
        own: try the package's own tests, too, where the kit does not kill a mutant.
        skip: number of the chosen mutants that an earlier run has tried.
    """
    target: Target = TARGETS[package]
    found = [(path, each) for path in target.files(package) for each in mutants(path.read_text())]
    chosen = random.Random(seed).sample(found, min(most, len(found)))
    for tests in filter(None, (target.kit, target.own) if own else (target.kit,)):
        path = target.files(package)[0]
        begun = time.monotonic()
        if (unchanged := outcome(package, path, path.read_text(), tests, 600, target.only)) != SURVIVED:
            sys.exit(f"{package}: the tests of unchanged code fail ({unchanged}): {' '.join(tests)}")
        print(
            f"{package}: {len(found)} mutants, {len(chosen)} tried; unchanged {time.monotonic() - begun:.1f} s"
        )
    for path, mutant in sorted(chosen, key=lambda each: (each[0].name, each[1].line))[skip:]:
        trial = _tried(package, path, mutant, target, own, limit_s)
        _tell(trial)
        yield trial


def _tried(package: str, path: Path, mutant: Mutant, target: Target, own: bool, limit_s: float) -> Trial:
    tests = target.kit_of(path.stem)
    kit = outcome(package, path, mutant.source, tests, limit_s, target.only) if tests else SURVIVED
    further = (
        outcome(package, path, mutant.source, target.own, 5 * limit_s) if own and kit == SURVIVED else ""
    )
    return Trial(f"{package}/{path.stem}", mutant.line, mutant.change, kit, further)


def _tell(trial: Trial) -> None:
    if trial.kit == SURVIVED:
        print(
            f"  {trial.module}:{trial.line}: {trial.change}: kit {trial.kit}, own tests {trial.own or '-'}",
            flush=True,
        )


def main() -> None:
    """Try mutants of the named packages, and print a line of counts for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", default=[*TARGETS], help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--most", type=int, default=100, help="mutants of each package")
    parser.add_argument("--own", action="store_true", help="also run the package's own tests")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a run of the kit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="mutants that an earlier run has tried")
    parser.add_argument("--output", type=Path, help="file for the trials, as JSON lines, one after the other")
    args = parser.parse_args()
    os.chdir(ROOT)
    _import_what_is_shared()
    for package in args.packages:
        trials = []
        for trial in try_package(package, args.most, args.own, args.limit, args.seed, args.skip):
            trials.append(trial)
            if args.output:
                with args.output.open("ab") as file:
                    file.write(msgspec.json.encode(trial) + b"\n")
        by_kit, by_own = Counter(each.kit for each in trials), Counter(each.own for each in trials)
        killed = len(trials) - by_kit[SURVIVED]
        print(
            f"{package}: kit {killed}/{len(trials)}, own tests {by_own[KILLED] + by_own[TIMEOUT]} more, "
            f"timeouts {by_kit[TIMEOUT]}",
            flush=True,
        )


def _import_what_is_shared() -> None:
    """Import what all tests need, so that forked processes do not. Starts no thread."""
    import _pytest.assertion.rewrite
    import hypothesis
    import pytest
    import torch
    from hypothesis import Phase

    torch.set_num_threads(1)
    import llmfw.core.testing as kit

    for name in kit.__all__:
        getattr(kit, name)
    assert _pytest
    assert pytest
    hypothesis.settings.register_profile(
        "unshrunk", max_examples=100, phases=[Phase.explicit, Phase.generate]
    )


if __name__ == "__main__":
    main()
