"""A plugin that passes a wrong setting reads which one, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.api.for_plugins.argument_types import check_prompt, check_settings
from llmfw.core.base.request import SamplingParams


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"sampling": {"max_tokens": 5}},
            r"^sampling is \{'max_tokens': 5\} \(dict\); give a SamplingParams or None$",
        ),
        (
            {"sampling": SamplingParams(stop=(7,))},
            r"wrong type: Expected `str`, got `int` - at `\$.stop\[0\]`$",
        ),  # type: ignore[arg-type]
        ({"sampling": SamplingParams(max_tokens=2.5)}, r"Expected `int \| null`, got `float`"),  # type: ignore[arg-type]
        ({"timeout_s": False}, "^timeout_s is False"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_settings(**settings)


def test_right_settings_pass() -> None:
    check_settings(SamplingParams(logit_bias={5: 1.0}, stop=("a",), bad_words=((1, 2),)), 0, None, -1, 0.5)


@pytest.mark.parametrize("prompt", ["", "a", [], [1, 2], (3,), range(4)])
def test_texts_and_token_ids_are_prompts(prompt: Any) -> None:
    check_prompt("prompt", prompt)
