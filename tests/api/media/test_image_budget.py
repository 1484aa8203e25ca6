"""The images of all requests together stay within the memory for them, and one tenant within half of it."""

from __future__ import annotations

import pytest

from llmfw.api.media.image_budget import ImageBudget
from llmfw.core.base.errors import OverloadedError, RequestError, TenantLimitError


def test_a_request_that_never_fits_gets_a_400() -> None:
    budget = ImageBudget(1000)
    with budget.holding("a") as hold:
        hold.add(500)
        with pytest.raises(RequestError, match="more than 500 bytes"):
            hold.add(1)
    assert budget.used == 0


def test_a_tenant_gets_half_of_the_memory() -> None:
    budget = ImageBudget(1000)
    with budget.holding("a") as first, budget.holding("a") as second, budget.holding("b") as other:
        first.add(400)
        with pytest.raises(TenantLimitError):
            second.add(101)
        second.add(100)
        other.add(500)
        with budget.holding("c") as late, pytest.raises(OverloadedError):
            late.add(1)
    with budget.holding("a") as again:
        again.add(500)
    assert budget.used == 0
