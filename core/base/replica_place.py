"""The place of an engine among the engines of one server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ReplicaPlace(msgspec.Struct, frozen=True):
    """Which of a server's engines this one is, and how many there are.

    Attributes:
        index: number of the engine, from 0.
        count: number of engines.
        model: served name of the engine's model, if each engine serves another model; "": all serve one.
        weights: sizes of the stored weights of all engines' models, in bytes, if each engine serves another
            model; 0: unknown. Empty if all serve one model.
    """

    index: int = 0
    count: int = 1
    model: str = ""
    weights: tuple[int, ...] = ()

    @property
    def is_replica(self) -> bool:
        """Whether there are other engines of the same model."""
        return self.count > 1 and not self.model

    @property
    def label(self) -> int | str | None:
        """Number of a replica, or the model of one of several models, for the log; None for the only engine."""
        return self.model or (self.index if self.count > 1 else None)

    def share(self, total: int) -> int:
        """Return this engine's share of `total` equal things, such as CPU cores, at least 1.

        The shares of all engines add up to `total` if there are at least as many things as engines.
        """
        return max(1, (self.index + 1) * total // self.count - self.index * total // self.count)

    def gpu(self, num_gpus: int) -> int:
        """Return the number of the GPU of an engine that serves one of several models."""
        return self.index % num_gpus

    def companions(self, num_gpus: int | None) -> Sequence[int]:
        """Return the indexes of the other engines whose models are in the same memory.

        Args:
            num_gpus: number of GPUs that the engines are spread over; None: all share one memory.
        """
        others = (index for index in range(self.count) if index != self.index)
        if num_gpus is None:
            return list(others)
        return [index for index in others if index % num_gpus == self.gpu(num_gpus)]
