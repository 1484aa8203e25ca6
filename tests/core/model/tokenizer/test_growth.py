"""A tokenizer that makes very long texts from short ones is refused when it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, normalizers

from llmfw.core.base.errors import ModelError
from llmfw.core.model.tokenizer.growth import MAX_GROWTH, check_growth
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer


def backend_with(**parts: Any) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend


SQUARED = [normalizers.Replace("a", "a" * 2000), normalizers.Replace("aa", "b" * 2000)]


@pytest.mark.parametrize(
    ("part", "growth"),
    [
        ({"normalizer": normalizers.Sequence(SQUARED)}, 2_000_000),
        ({"normalizer": normalizers.Replace(tokenizers.Regex("x*"), "y" * 300)}, 301),
        ({"normalizer": normalizers.Prepend("y" * 300)}, 301),
        (
            {
                "normalizer": normalizers.Sequence(
                    [normalizers.NFKC(), normalizers.Sequence([normalizers.NFKD()])]
                )
            },
            324,
        ),
        ({"decoder": decoders.Sequence([decoders.Replace("a", "b" * 1000), decoders.Fuse()])}, 1000),
    ],
)
def test_a_tokenizer_that_makes_too_much_is_refused(
    part: dict[str, Any], growth: int, tmp_path: Path
) -> None:
    backend_with(**part).save(str(tmp_path / "tokenizer.json"))
    [name] = part
    with pytest.raises(
        ModelError, match=f"its {name} may make {growth} characters from one, and at most {MAX_GROWTH}"
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"normalizer": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])},
        {
            "normalizer": normalizers.Sequence(
                [normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
            )
        },
        {"normalizer": normalizers.BertNormalizer()},
        {
            "decoder": decoders.Sequence(
                [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
            )
        },
        {"decoder": decoders.WordPiece()},
        {"decoder": decoders.ByteLevel()},
    ],
)
def test_parts_of_known_tokenizers_are_accepted(part: dict[str, Any], tmp_path: Path) -> None:
    check_growth(tmp_path, backend_with(**part))
