"""Finds the folder of a model's small files, and downloads them for a hub id."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.base.errors import ModelError

HUB_PATTERNS = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]


def model_files(model: str) -> Path:
    """Return the folder of a model's small files, after downloading them for a hub id.

    Raises:
        ModelError: the files of the hub id are not in the local cache, and cannot be downloaded.
    """
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=HUB_PATTERNS))
    except Exception as error:  # the library raises many classes, of several other libraries
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ModelError(
            f"{model!r} is not a folder, and its tokenizer cannot be had from the hub: {reason}; check the id, the network and "
            f"HF_TOKEN, or download it elsewhere (hf download {model} --local-dir DIR) and give the folder; `llmfw plugins` "
            "lists registered models"
        ) from error
