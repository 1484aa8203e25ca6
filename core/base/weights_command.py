"""The command that replaces a model's weights while the server runs, and its answer."""

from __future__ import annotations

import msgspec

OTHER_WEIGHTS = "other weights were loaded while the request ran; send it again"
"""Reason for ending a request whose output comes from the previous weights."""


class LoadWeights(msgspec.Struct, frozen=True, tag="load_weights"):
    """Serve another checkpoint, which must differ from the current one in its weights alone.

    New requests wait meanwhile. Deferrable requests that run start over. The answer is a `WeightsInfo`. If the
    checkpoint cannot be loaded, the weights stay.

    Attributes:
        path: folder of the checkpoint.
        timeout_s: longest time to wait for running requests, in seconds. If some still run then, nothing
            changes.
        aborts: whether running requests end with an error at once, instead of being waited for.
        version: version of the weights that the other engines serve, to which this one must return; "": other weights
            are loaded. An engine that cannot return does not keep its current weights: it tries again, as after a
            death.
    """

    path: str
    timeout_s: float = 0.0
    aborts: bool = False
    version: str = ""


class WeightsInfo(msgspec.Struct, frozen=True, tag="weights"):
    """The weights in use.

    Attributes:
        path: folder of the checkpoint, or the model that the server was started with.
        version: version of the weights (`EngineInfo.weight_version`).
        host_bytes, device_bytes: memory of the processes that have loaded them (see `MemoryInfo`).
    """

    path: str
    version: str
    host_bytes: int = 0
    device_bytes: int = 0
