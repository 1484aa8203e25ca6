"""Install the servers that llmfw is measured against, each in an environment of its own, as far as they can be.

    .venv/bin/python docs/benchmarks/install_peers.py --help

What is installed already, from the versions that are pinned now, stays. For each that cannot be installed the reason is
told, and kept for the page. A build of llama.cpp takes as many processes as there are cores, or JOBS.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from peers.catalog import INSTALLERS
from peers.peer import CannotInstallError, Home

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Install them; exit with 1 if none of them can be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(INSTALLERS)} [default: all]")
    parser.add_argument("--folder", type=Path, default=ROOT / ".peers", help="where to (default .peers)")
    options = parser.parse_args()
    unknown = set(options.names) - set(INSTALLERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(INSTALLERS)}")
    installed = [install(name, options.folder) for name in options.names or INSTALLERS]
    sys.exit(0 if any(installed) else 1)


def install(name: str, folder: Path) -> bool:
    """Install one, say how that went, and return whether it is there."""
    home = Home.of(name, folder)
    if home.is_current:
        print(f"{name}: is there", flush=True)
        return True
    print(f"{name}: installing into {home.folder} …", flush=True)
    begun = time.monotonic()
    try:
        home.install(INSTALLERS[name])
    except CannotInstallError as error:
        print(f"{name}: cannot be installed: {error} (more in {home.folder}/install.log)", flush=True)
        return False
    print(f"{name}: installed in {time.monotonic() - begun:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    main()
