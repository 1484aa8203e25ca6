"""Installs what a bare machine lacks, from the wheels and packages in .whl/, and makes llmfw's own plugins known.

llmfw itself is not installed: it is imported from the checkout. What tells its plugins is the list of entry points that
an installation writes; here it is written from pyproject.toml. Needs nothing but the standard library and pip.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from lines import Line
from task import ROOT, Task

WHEELS = ROOT / ".whl"


def measure(task: Task) -> Iterator[Line]:
    """Install into the run's own folder. With --dry no wheel is, as they are for the GPU machine's Python."""
    site = task.work / "site"
    write_metadata(site)
    wheels = [] if task.dry else sorted(WHEELS.glob("*.whl"))
    if wheels:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-compile",
        ]
        command += ["--no-cache-dir", "--upgrade", "--target", str(site), *map(str, wheels)]
        subprocess.run(command, check=True)
    packages = [] if task.dry else link_packages(WHEELS, site)
    yield Line("install", note=", ".join([f"{len(wheels)} wheels", *packages]))


def link_packages(folder: Path, site: Path) -> list[str]:
    """Make packages that lie in a folder as they are importable, such as FlashInfer's kernels; return their names."""
    found = sorted(path.parent for path in folder.glob("*/__init__.py"))
    for package in found:
        (site / package.name).symlink_to(package.resolve())
    return [package.name for package in found]


def write_metadata(site: Path) -> None:
    """Write into a folder what tells Python which plugins llmfw has, as an installation would."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
