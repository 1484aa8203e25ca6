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


def test_models_take_gpus_in_turns() -> None:
    places = [ReplicaPlace(index, 3, f"m{index}", (1, 1, 1)) for index in range(3)]
    assert [place.gpu(2) for place in places] == [0, 1, 0]
    assert [place.companions(2) for place in places] == [[2], [], [0]]
    assert [place.companions(4) for place in places] == [[], [], []]
    assert places[1].companions(None) == [0, 2]


def test_only_engines_of_one_model_are_replicas() -> None:
    assert ReplicaPlace(1, 2).is_replica
    assert not ReplicaPlace().is_replica
    assert not ReplicaPlace(1, 2, "m", (1, 1)).is_replica
    assert [ReplicaPlace().label, ReplicaPlace(1, 2).label, ReplicaPlace(1, 2, "m").label] == [None, 1, "m"]
