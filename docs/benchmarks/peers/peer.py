"""What a peer is, and the environment of its own that it is installed into. Knows no particular peer."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers import Server

VERSIONS = Path(__file__).with_name("versions.toml")
INSIDE = Path(__file__).with_name("inside")


class CannotInstallError(Exception):
    """A peer cannot be installed on this machine; the message says why."""


@dataclass(frozen=True)
class Peer:
    """A server in one setting, as it stands in the tables.

    Attributes:
        name: in the tables.
        home: name of the environment that it is installed in.
        bits: of a weight; those with the same are compared.
        weights: what it reads: "safetensors" for a model folder, else the type of a GGUF file, such as "bf16".
        serve: environment, model file or folder, model folder → the server, not started.
    """

    name: str
    home: str
    bits: int
    weights: str
    serve: Callable[[Home, Path, Path], Server]


@dataclass(frozen=True)
class Home:
    """A folder with a virtual environment, for one peer.

    Attributes:
        folder: which may not exist yet.
        pinned: this peer's section of versions.toml.
    """

    folder: Path
    pinned: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, folder: Path) -> Home:
        """Return the home of a peer below the folder of all peers."""
        return cls(folder.resolve() / name, tomllib.loads(VERSIONS.read_text())[name])

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def missing(self) -> str | None:
        """Return why the peer cannot run, or None where it can."""
        if (self.folder / "why_not").exists():
            return (self.folder / "why_not").read_text().strip()
        if not self._mark.exists():
            return "it is not installed; `make peers` does that"
        return None

    @property
    def is_current(self) -> bool:
        """Whether it is installed from what versions.toml says now."""
        return self._mark.exists() and self._mark.read_text() == repr(self.pinned)

    def install(self, how: Callable[[Home], None]) -> None:
        """Make the environment, put the pinned packages into it, then do what else the peer needs.

        Raises:
            CannotInstallError: with the reason, which is kept too.
        """
        self._mark.unlink(missing_ok=True)
        (self.folder / "why_not").unlink(missing_ok=True)
        try:
            self.run([sys.executable, "-m", "venv", self.folder])
            self.pip("install", *self.pinned["packages"])
            how(self)
        except CannotInstallError as error:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "why_not").write_text(f"{error}\n")
            raise
        self._mark.write_text(repr(self.pinned))

    def pip(self, *arguments: str) -> None:
        """Run pip in the environment.

        Raises:
            CannotInstallError: it failed.
        """
        self.run([self.python, "-m", "pip", "--disable-pip-version-check", *arguments])

    def run(self, command: list[str | Path], cwd: Path | None = None) -> str:
        """Run a command to its end; what it prints goes to `install.log`, and is returned.

        Raises:
            CannotInstallError: it failed; the last line that it printed is quoted.
        """
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
        except OSError as error:
            raise CannotInstallError(f"{words[0]}: {error.strerror}") from error
        if self.folder.exists():
            with (self.folder / "install.log").open("a") as log:
                log.write(f"$ {' '.join(words)}\n{done.stdout}\n")
        if done.returncode:
            lines = [line for line in done.stdout.splitlines() if line.strip()]
            errors = [line for line in lines if "error" in line.lower()]
            last = (errors or lines or ["no output"])[-1]
            raise CannotInstallError(f"`{Path(words[0]).name} {' '.join(words[1:5])} …` failed: {last}")
        return done.stdout

    @property
    def _mark(self) -> Path:
        return self.folder / "installed"
