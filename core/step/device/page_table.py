"""The page table of an executor: which pages hold the keys and values of each row, on the host and on the device."""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.step import Ints, Pages

from .staging import Staging


class PageTable:
    """Two copies of one table; the changes in each step keep them equal.

    If host and device share memory, the two are one. Otherwise, writes to the device's copy happen in the order of the
    device's work, so a row may change on the host while a launched step still reads it. The last row is for padding: all
    its entries are one page that the scheduler does not have.

    Args:
        num_rows: maximum number of sequences that run at once.
        width: maximum number of pages of a sequence.
        page_size: number of tokens in one page.
        staging: sends changes to the device.
        device: device on which steps run.
        padding_page: page of the last row.

    Attributes:
        page_size: number of tokens in one page.
        tensor: the device's copy, int32: [num_rows + 1, width].
        padding_row: row for padding.
        padding_slot: slot for the key and value of padding.
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        page_size: int,
        staging: Staging,
        device: torch.device,
        *,
        padding_page: int = 0,
    ) -> None:
        self.page_size = page_size
        self.padding_row = num_rows
        self.padding_slot = padding_page * page_size
        self._host = np.zeros((num_rows + 1, width), dtype=np.int32)
        self._host[num_rows] = padding_page
        self._flat = self._host.reshape(-1)
        self._is_shared = staging.is_shared
        self.tensor = (
            torch.from_numpy(self._host) if self._is_shared else torch.tensor(self._host, device=device)
        )

    @property
    def num_rows(self) -> int:
        """Maximum number of sequences that run at once."""
        return self.padding_row

    def change(self, places: Ints, pages: Pages) -> tuple[Ints, Pages] | None:
        """Take changes on the host.

        Args:
            places: places as row * width + column: [N].
            pages: the pages there: [N].

        Returns:
            The input of `write`, to be sent to the device; None: nothing to write.
        """
        if not len(places):
            return None
        self._flat[places] = pages
        return None if self._is_shared else (places, pages)

    def write(self, places: torch.Tensor, pages: torch.Tensor) -> None:
        """Write changes, which are on the device, to its copy: [N], [N]."""
        if places.numel():
            self.tensor.view(-1).index_copy_(0, places, pages)

    def slots(self, rows: Ints, positions: Ints) -> Ints:
        """Return the slots of tokens' keys and values, as page * page_size + offset: [T].

        Args:
            rows: row of each token: [T].
            positions: position of each token in its sequence: [T].
        """
        columns, offsets = np.divmod(positions, self.page_size)
        slots: Ints = self._host[rows, columns].astype(np.int64) * self.page_size + offsets
        return slots
