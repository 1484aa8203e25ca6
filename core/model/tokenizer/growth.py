"""Refuses a tokenizer that makes very long texts from short ones.

A few letters of a prompt, or a few tokens of an output, would take minutes and gigabytes. The limits on
requests count the text and the tokens before they grow.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import tokenizers

from llmfw.core.base.errors import ModelError

MAX_GROWTH = 256
"""Maximum number of characters that normalizers or decoders may make from one character. Unicode's own forms
make up to 18 (from U+FDFA), and models' own tokenizers add one or two."""
_OF_UNICODE = {"NFKC": 18, "NFKD": 18, "NFC": 3, "NFD": 4, "BertNormalizer": 4, "Lowercase": 3, "Nmt": 1}


def check_growth(folder: Path, backend: tokenizers.Tokenizer) -> None:
    """Raise ModelError if the normalizer or decoder may make over `MAX_GROWTH` characters from one."""
    for name in ("normalizer", "decoder"):
        part = getattr(backend, name)
        growth = 1.0 if part is None else _growth(json.loads(part.__getstate__()))
        if growth > MAX_GROWTH:
            raise ModelError(
                f"the tokenizer in {folder} cannot be served: its {name} may make {growth:.0f} characters from one, and at "
                f"most {MAX_GROWTH} are allowed; take the tokenizer files from the model's source"
            )


def _growth(part: Any) -> float:
    """Return the maximum number of characters that a normalizer or a decoder makes from one character.

    Args:
        part: description of the normalizer or decoder.
    """
    kind = part.get("type")
    if kind == "Sequence":
        return math.prod(map(_growth, part.get("normalizers") or part.get("decoders") or []))
    if kind == "Prepend":
        return 1.0 + len(part["prepend"])
    if kind == "Replace":
        pattern, content = part["pattern"].get("String"), len(part["content"])
        if pattern:
            return max(1.0, content / len(pattern))
        return 1.0 + content  # a regular expression may match nothing, between any two characters
    return float(_OF_UNICODE.get(kind, 1))
