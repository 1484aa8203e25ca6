"""The command `llmfw`. Fails with a message if the other project of that name is installed.

The package index has another project `llmfw` with the same import name and command. If both are installed in one
environment, each overwrites files of the other. So this file is installed outside the package `llmfw`, as the module
`llmfw_engine`, and imports nothing of llmfw before it has checked.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

OTHER = "llmfw"


def main() -> None:
    """Run the command line; the console script's entry point."""
    problem = clash()
    if problem is not None:
        sys.exit(f"Error: {problem}")
    from llmfw.api.cli import main as run

    run()


def clash() -> str | None:
    """Return what to do if the other project's package is installed; else None."""
    try:
        found = version(OTHER)
    except PackageNotFoundError:
        return None
    return (
        f"the package llmfw {found} is installed; it is not this project, and it overwrites files of llmfw-engine: "
        "run `pip uninstall --yes llmfw llmfw-engine`, then `pip install llmfw-engine`"
    )


if __name__ == "__main__":
    main()
