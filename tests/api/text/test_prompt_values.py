"""The log probabilities of prompts in one reply are limited before anything is computed."""

from __future__ import annotations

import pytest

from llmfw.api.text.prompt_values import MAX_PROMPT_VALUES, check_prompt_values
from llmfw.core.base.errors import RequestError


def test_values_up_to_the_limit_are_allowed() -> None:
    check_prompt_values([[0] * 1024] * 4, width=16, copies=MAX_PROMPT_VALUES // (4 * 1024 * 16), param="echo")


@pytest.mark.parametrize(("num_prompts", "copies"), [(1, 2), (2, 1)])
def test_more_values_are_refused_by_name(num_prompts: int, copies: int) -> None:
    prompts = [[0] * (MAX_PROMPT_VALUES // 2 + 1)] * num_prompts
    with pytest.raises(
        RequestError, match="echo asks for 1048578 log probabilities of prompt tokens in 2 choices"
    ):
        check_prompt_values(prompts, width=1, copies=copies, param="echo")


def test_a_single_copy_has_no_limit() -> None:
    check_prompt_values([[0] * MAX_PROMPT_VALUES], width=21, copies=1, param="echo")
