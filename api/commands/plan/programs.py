"""Runs programs that import torch in processes of their own, for `llmfw plan`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from llmfw.core.base.errors import ModelError


def run_program(folder: Path, program: str, *arguments: str) -> str:
    """Run a program on the model in a folder; return what it prints.

    Args:
        program: Python code, which gets the folder and `arguments` in `sys.argv`.

    Raises:
        ModelError: the program failed; the message has the reason.
    """
    command = [sys.executable, "-c", program, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no reason given"
        ours = re.match(r"llmfw\.core\.base\.errors\.\w+: (.*)", reason)
        raise ModelError(ours[1] if ours else f"transformers cannot build the model of {folder}: {reason}")
    return done.stdout
