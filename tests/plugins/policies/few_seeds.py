"""The kit of policies with one random load in `make test`, and with all of its loads in `make test-all`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.testing import SchedulePolicyTests

from ...length import also


class FewSeeds(SchedulePolicyTests):
    """Many policies run the kit; a load takes as long as all its other tests together."""

    @pytest.mark.parametrize("seed", [0, *also(range(1, 4))])
    def test_each_request_finishes_once_under_load(
        self, policy: SchedulePolicy, fields: Sequence[str], seed: int
    ) -> None:
        super().test_each_request_finishes_once_under_load(policy, fields, seed)

    @pytest.mark.parametrize("seed", [0, *also(range(1, 4))])
    def test_few_requests_are_retracted_under_load(
        self, policy: SchedulePolicy, fields: Sequence[str], seed: int
    ) -> None:
        super().test_few_requests_are_retracted_under_load(policy, fields, seed)
