"""The path of a component is imported; a misspelt name gets a suggestion."""

from __future__ import annotations

import json

import pytest

from llmfw.core.plugin.kinds import import_path


def test_a_nested_name_is_imported() -> None:
    assert import_path("json:JSONDecoder.decode") is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("path", "meant"), [("json:JsonDecoder", "JSONDecoder"), ("json:JSONDecoder.decod", "decode")]
)
def test_a_misspelt_name_is_corrected(path: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '\w+'\. Did you mean '{meant}'\?$"):
        import_path(path)


def test_an_unlike_name_gets_no_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Zz'$"):
        import_path("json:Zz")
