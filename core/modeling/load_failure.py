"""Why transformers could not load a model's weights, in one line that names the file. Knows nothing of models."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

LOAD_ERRORS = (OSError, ValueError, ImportError, SafetensorError)
"""What transformers raises where a folder cannot be loaded."""


def why_not(model: str, error: Exception) -> str:
    """Return what is wrong with a model's weights, else the first line of what was raised.

    safetensors tells of a file that may not be read as one that is not there, and of a damaged one without its name.

    Args:
        model: a folder, or a hub id.
        error: what loading raised.
    """
    for file in sorted(Path(model).glob("*.safetensors")):
        try:
            file.open("rb").close()
            with safe_open(file, "pt"):
                pass
        except OSError as refusal:
            return f"{file} cannot be read: {refusal.strerror or refusal}"
        except SafetensorError as damage:
            return f"{file} is damaged, or not a safetensors file: {damage}"
    return first_line(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its kind."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
