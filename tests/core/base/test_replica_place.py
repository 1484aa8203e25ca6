"""Engines share what a machine has without remainder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.replica_place import ReplicaPlace


@given(total=st.integers(1, 500), count=st.integers(1, 40))
def test_shares_add_up_and_are_even(total: int, count: int) -> None:
    shares = [ReplicaPlace(index, count).share(total) for index in range(count)]
    assert sum(shares) == max(total, count)
    assert max(shares) - min(shares) <= 1
