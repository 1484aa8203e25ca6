"""Tells modules that several layers share which layer calls them.

In Zamba, several layers have the same attention module, and pass their index in each call. Their keys and values
differ. So the module's `layer_idx`, by which attention finds the layer, must be that of the call.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from ..states.module_code import names_in

INTERFACE = "ALL_ATTENTION_FUNCTIONS"
INDEX = "layer_idx"


class FollowingForward:
    """Replacement of the `forward` of an attention module that takes its layer's index in each call.

    Args:
        module: the module. Its `layer_idx` becomes the index of the last call.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._forward = module.forward
        self._signature = inspect.signature(module.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's output."""
        self._module.layer_idx = self._signature.bind(*args, **kwargs).arguments[INDEX]
        return self._forward(*args, **kwargs)


def follow_layers(model: nn.Module) -> None:
    """Make each attention module that takes its layer's index in each call know that layer."""
    for module in model.modules():
        if INTERFACE in names_in(module) and INDEX in inspect.signature(module.forward).parameters:
            module.forward = FollowingForward(module)
