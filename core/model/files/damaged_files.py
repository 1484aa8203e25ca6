"""Explains in one line why a weights file cannot be read: safetensors, or a pickle."""

from __future__ import annotations

import re
from pathlib import Path

from safetensors import SafetensorError, safe_open


def damaged_safetensors(folder: Path) -> str | None:
    """Return an error message for a folder's first unreadable safetensors file; None if all are readable."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            file.open("rb").close()
            with safe_open(file, "pt"):
                pass
        except OSError as refusal:
            return f"{file} cannot be read: {refusal.strerror or refusal}"
        except SafetensorError as damage:
            return f"{file} is damaged, or not a safetensors file: {damage}"
    return None


def pickle_failure(error: Exception) -> str:
    """Return why a pickle file was not read. Names the function that the file would call, if any.

    Replaces torch's own message, which suggests to allow the call.
    """
    if found := re.search(r"GLOBAL (\S+) (was not an allowed|whose module)", str(error)):
        return (
            f"its .bin files would call {found[1]}, and llmfw reads nothing but tensors from them; do not trust the "
            "checkpoint, or convert it to safetensors"
        )
    return "one of its .bin files is damaged, or holds other things than tensors; download it again or convert it to safetensors"
