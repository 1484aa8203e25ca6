"""The executor's page table: the pages with each row's keys and values, on the host and on the device."""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.step import Ints, Pages

from .staging import Staging


class PageTable:
    """The page table: one copy on the host, one on the device. Each step makes the same changes to both.

    Writes to the device's copy are queued on the device, so a row may change on the host while a launched
    step still reads it. If host and device share memory, both copies are on the host and change at once.
    Components see only the device's copy. So if a component writes to this copy, `restore` can repair it. The
    last row is for padding: all its entries are one page that the scheduler never assigns.

    Args:
        num_rows: maximum number of running sequences.
        width: maximum number of pages of a sequence.
        page_size: number of tokens in one page.
        staging: sends changes to the device.
        device: device on which steps run.
        padding_page: page in all entries of the padding row.

    Attributes:
        page_size: number of tokens in one page.
        tensor: the device's copy, int32: [num_rows + 1, width].
        padding_row: row that padding uses.
        padding_slot: slot to which padding writes its keys and values.
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
        copy = self._host.copy()
        self._flat_copy = copy.reshape(-1)
        with torch.inference_mode(False):  # so that `_version` counts writes
            self.tensor = torch.from_numpy(copy) if self._is_shared else torch.tensor(copy, device=device)

    @property
    def num_rows(self) -> int:
        """Maximum number of running sequences."""
        return self.padding_row

    def change(self, places: Ints, pages: Pages) -> tuple[Ints, Pages] | None:
        """Change entries of the host's copy.

        Args:
            places: flat indices of the entries, as row * width + column: [N].
            pages: new pages of the entries: [N].

        Returns:
            The arguments for `write`, which the caller must send to the device; None if no write is
            necessary.
        """
        if not len(places):
            return None
        self._flat[places] = pages
        if self._is_shared:
            self._flat_copy[places] = pages
            return None
        return places, pages

    def restore(self) -> None:
        """Restore the device's copy after a component has changed it."""
        self.tensor.copy_(torch.from_numpy(self._host))

    def write(self, places: torch.Tensor, pages: torch.Tensor) -> None:
        """Change entries of the device's copy. `places` and `pages` are on the device: [N] each."""
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
