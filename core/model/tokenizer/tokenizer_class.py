"""Refuses a tokenizer.json whose algorithm and ids do not match the class in tokenizer_config.json.

For some classes, transformers takes only the vocabulary from tokenizer.json, and the algorithm from the
class: with `BertTokenizer`, a byte-level BPE becomes a WordPiece tokenizer. The two files disagree if one of
them belongs to another model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from llmfw.core.base.errors import ModelError

_NAMES = {
    "WordPiece": (
        "Bert",
        "DistilBert",
        "Electra",
        "Funnel",
        "LayoutLM",
        "MobileBert",
        "MPNet",
        "SqueezeBert",
    ),
    "Unigram": ("Albert", "BigBird", "MBart", "MBart50", "Pegasus", "RemBert", "T5", "XLMRoberta", "XLNet"),
    "BPE": ("Bart", "GPT2", "GPTNeoX", "Qwen2", "Roberta"),
}
KINDS = {f"{name}Tokenizer": kind for kind, names in _NAMES.items() for name in names}
"""Algorithms of classes that have only one. `LlamaTokenizer` is left out: files of several algorithms name
it."""
TEXTS = ("Hello world! The quick brown fox, 123.\n", " naïve  İstanbul", "漢字")


def check_class(folder: Path, backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """Refuse a tokenizer.json if transformers' tokenizer would return other token ids.

    Compares with transformers' tokenizer only if the class is of another kind than the file. If transformers
    cannot load its tokenizer for an unrelated reason, the file is accepted.

    Args:
        backend: contents of tokenizer.json.
        config: contents of tokenizer_config.json.

    Raises:
        ModelError: the token ids differ, or transformers' tokenizer fails; the message names the class and
            both kinds.
    """
    name = config.get("tokenizer_class")
    wanted = KINDS.get(name.removesuffix("Fast")) if isinstance(name, str) else None
    kind = type(backend.model).__name__
    if wanted in (None, kind) or "auto_map" in config or _encodes_alike(folder, backend):
        return
    raise ModelError(
        f"{folder / 'tokenizer_config.json'}: tokenizer_class is {name!r}, of the kind {wanted}, and tokenizer.json is a {kind}, so "
        "transformers would not give the same tokens; take both files of one model, or write 'PreTrainedTokenizerFast' if "
        "tokenizer.json is the right one"
    )


def _encodes_alike(folder: Path, backend: tokenizers.Tokenizer) -> bool:
    """Return whether transformers' tokenizer returns the same tokens.

    Returns True also if a missing package or config prevents loading it, because this has another cause.
    """
    try:
        from transformers import AutoTokenizer

        other = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except (ImportError, OSError, ValueError):
        return True  # such as a package or a config that is missing
    except Exception:  # noqa: BLE001 - the class cannot use this vocabulary
        return False
    try:
        return all(
            other.encode(text, add_special_tokens=False) == backend.encode(text, add_special_tokens=False).ids
            for text in TEXTS
        )
    except Exception:  # noqa: BLE001 - tokenizers raises plain Exception
        return False
