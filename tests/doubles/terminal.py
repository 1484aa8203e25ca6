"""`llmfw` on a terminal, as a person has it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys


class Terminal:
    """`llmfw` on a terminal of its own.

    Args:
        program: a script that is run in its place.
    """

    def __init__(self, *arguments: str, program: str | None = None) -> None:
        self._end, theirs = pty.openpty()
        command = [sys.executable, *([program] if program else ["-m", "llmfw.api"]), *arguments]
        # A session of its own, whose terminal this is: so Ctrl-C reaches it, and it alone.
        take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", take, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def expect(self, text: str) -> None:
        """Read until a text is shown; fail if it does not come."""
        seen = ""
        while text not in seen:
            ready, _, _ = select.select([self._end], [], [], 10)
            assert ready, f"{text!r} is not in {seen!r}"
            seen += os.read(self._end, 1).decode(errors="replace")

    def close(self) -> int:
        """Return the exit code of a program that ends by itself."""
        code = self._process.wait(10)
        os.close(self._end)
        return code
