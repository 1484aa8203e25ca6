"""`python -m llmfw.api.launch.child`: runs `llmfw`, and ends when its parent process ends.

The parent keeps a pipe to this process's standard input open. The system closes the pipe however the parent
ends.
"""

from __future__ import annotations

import os
import signal
import threading


def main() -> None:
    """Run the command line of the process's arguments."""
    threading.Thread(target=_end_with_parent, name="llmfw-parent", daemon=True).start()
    from llmfw.api.cli import main as run

    run()


def _end_with_parent() -> None:
    # Not `sys.stdin`, whose lock this thread would still hold when the interpreter ends.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
