"""What config.json says of cutting vectors is taken as it is, or refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llmfw.core.base.errors import ModelError
from llmfw.core.engine.embedding.matryoshka import load_matryoshka


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"is_matryoshka": False}, None),
        ({"is_matryoshka": True}, ()),
        ({"matryoshka_dimensions": [64, 32]}, (32, 64)),
    ],
)
def test_a_config_says_which_cuts_are_allowed(fields: dict[str, Any], expected: Any) -> None:
    assert load_matryoshka("m", SimpleNamespace(**fields), 64) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"is_matryoshka": "yes"},
        *({"matryoshka_dimensions": wrong} for wrong in ([], [65], [0], [True], "64", 64)),
    ],
)
def test_a_wrong_config_is_refused_by_field(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(ModelError, match=name):
        load_matryoshka("m", SimpleNamespace(**fields), 64)
