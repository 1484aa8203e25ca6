"""Restores torch's default dtype and device before a step, if a plugin changed them while the server runs.

The model's code and plugins create tensors with these defaults. With other defaults, the code computes wrong
numbers, or reads memory outside its tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)


class TorchDefaults:
    """Checks torch's default dtype and device. The values when this object is created count as correct.

    Must be created and used in the thread that runs the steps: a default device belongs to one thread.

    Args:
        users: function that returns a description, for the log, of the components whose code runs in the
            thread.
    """

    def __init__(self, users: Callable[[], str]) -> None:
        self._dtype = torch.get_default_dtype()
        self._device = torch.get_default_device()
        self._num_modes = _num_modes()
        self._users = users
        self._told = False

    def restore(self) -> None:
        """Restore the defaults if they have changed; log an error the first time."""
        if torch.get_default_dtype() is self._dtype and _num_modes() == self._num_modes:
            return
        changed = []
        if (dtype := torch.get_default_dtype()) is not self._dtype:
            torch.set_default_dtype(self._dtype)
            changed.append(f"default dtype from {self._dtype} to {dtype}")
        if (device := torch.get_default_device()) != self._device:
            torch.set_default_device(None if self._device.type == "cpu" else self._device)
            changed.append(f"default device from {self._device} to {device}")
        self._num_modes = _num_modes()  # counts other modes, too; llmfw must not end those
        if changed and not self._told:
            self._told = True
            logger.error(
                "The code of %s changed torch's %s while the server ran. llmfw has set this back before the next "
                "step, and does so without a line from now on; tokens of the step in which it happened may be "
                "wrong. The plugin must pass dtype and device to torch's functions instead",
                self._users(),
                " and ".join(changed),
            )


_num_modes = torch._C._len_torch_function_stack
"""Return how many modes, such as a default device, are active in this thread.

Much faster than reading the default device.
"""
