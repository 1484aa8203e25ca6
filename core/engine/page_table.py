"""The scheduler's page table, where the device can read it. It knows neither sequences nor who owns a page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


class PageTable:
    """A page table on the host, and the same on the device.

    On a CPU they are one. Elsewhere the device has a copy, of which each step brings its own rows up to date; copies
    are in the order of the device's work, so a row may change on the host while a launched step still reads it.

    Args:
        host: the scheduler's, [R, most pages of a sequence].
        page_size: tokens in one page.
        device: where steps run.

    Attributes:
        host: as given.
        tensor: on the device, [R, most pages of a sequence], int32.
    """

    def __init__(self, host: npt.NDArray[np.int32], page_size: int, device: torch.device) -> None:
        self.host = host
        self._page_size = page_size
        self._is_shared = device.type == "cpu"
        shared = torch.from_numpy(host)
        self.tensor = shared if self._is_shared else shared.to(device)

    def update(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Bring rows up to date, as far as their tokens reach.

        Args:
            rows: each once, [B].
            lengths: tokens of each, [B].
        """
        if self._is_shared:
            return
        most = -(-int(lengths.max()) // self._page_size)
        pages = torch.from_numpy(self.host[rows, :most])  # a copy
        self.tensor[torch.from_numpy(rows).to(self.tensor.device), :most] = pages.to(self.tensor.device)
