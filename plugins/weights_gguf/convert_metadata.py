"""Writes config and tokenizer of a GGUF file into a folder.

Usage: `python -m llmfw.plugins.weights_gguf.convert_metadata FILE FOLDER`. The conversion runs in its own
process, because it imports torch and transformers, and a process that serves HTTP does not import them. If
the file is refused, the process prints the reason on its last line, and exits with the code REFUSED.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from llmfw.core import ModelError

REFUSED = 3
SECONDS = 600
"""Time limit of a conversion. A vocabulary of 256,000 tokens takes one minute on a slow machine."""


def convert(file: Path, folder: Path) -> None:
    """Write config and tokenizer of a file into a folder, in a child process.

    Raises:
        ModelError: llmfw does not serve the file's model, or transformers cannot convert the metadata.
    """
    command = [sys.executable, "-P", "-m", __name__, str(file), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"the metadata of {file} was not converted within {SECONDS} s; is the file a model's?"
        ) from error
    if done.returncode == REFUSED:
        raise ModelError(done.stdout.strip().rpartition("\n")[2])
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ModelError(
            f"the metadata of {file} cannot be converted: {last:.500}; take the safetensors checkpoint"
        )


def write_described(file: Path, folder: Path) -> None:
    """Write config and tokenizer of a file into a folder, in this process.

    Raises:
        ModelError: llmfw does not serve the file's model.
    """
    from .config import config_of, end_tokens
    from .served_files import checked_header
    from .tokenizer import write_tokenizer

    header = checked_header(file)
    _write_config(folder, config_of(file, header))
    generation = {"eos_token_id": end_tokens(header)} if end_tokens(header) else {}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    write_tokenizer(file, folder, header)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    from transformers import AutoConfig

    AutoConfig.for_model(**config).save_pretrained(folder)


def main() -> None:
    """Convert the file (first argument) into the folder (second argument)."""
    try:
        write_described(Path(sys.argv[1]), Path(sys.argv[2]))
    except ModelError as error:
        print(error)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
