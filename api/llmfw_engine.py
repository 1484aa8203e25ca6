"""The command `llmfw`. Fails with a message if the other project of that name is installed.

The package index has another project `llmfw` with the same import name and command. If both are installed in one
environment, each overwrites files of the other. So this file is installed outside the package `llmfw`, as the module
`llmfw_engine`, and imports nothing of llmfw before it has checked.
"""

from __future__ import annotations

import os
import signal
import sys

OTHER = "llmfw"
INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a command that SIGINT has ended."""


def main() -> None:
    """Run the command line; the console script's entry point.

    Until the command line is imported, Ctrl-C ends the process in one line; afterwards, the command line handles it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if the caller ignores it, as nohup does
        signal.signal(signal.SIGINT, _stop)
    problem = clash()
    if problem is not None:
        sys.exit(f"Error: {problem}")
    from llmfw.api.cli import main as run

    signal.signal(signal.SIGINT, handler)
    run()


def _stop(signum: int, frame: object) -> None:
    """End the process at once; there is nothing to clean up yet."""
    os.write(2, b"\nStopped by Ctrl-C\n")
    os._exit(INTERRUPTED)


def clash() -> str | None:
    """Return advice if the other project's package is installed; else None."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as all other imports here

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
