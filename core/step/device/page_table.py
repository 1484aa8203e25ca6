"""The page table of an executor: which pages hold the keys and values of each row, on the host and on the device."""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.step import Ints, Pages

from .staging import Staging


class PageTable:
    """Two copies of one table, kept equal by the changes that come with each step.

    Where host and device share their memory they are one. Elsewhere, writes to the device's copy are in the order of the
    device's work, so a row may change on the host while a launched step still reads it. The last row is for sequences that
    are padding: all its pages are one that the scheduler does not have.

    Args:
        num_rows: sequences that may run at once.
        width: most pages of a sequence.
        page_size: tokens in one page.
        staging: brings changes to the device.
        device: where steps run.
        padding_page: the last row's page.

    Attributes:
        page_size: as given.
        tensor: on the device, int32: [num_rows + 1, width].
        padding_row: the row that is for padding.
        padding_slot: where the key and value of padding go.
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
        """Sequences that may run at once."""
        return self.padding_row

    def change(self, places: Ints, pages: Pages) -> tuple[Ints, Pages] | None:
        """Take changes on the host.

        Args:
            places: as row * width + column: [N].
            pages: the pages there: [N].

        Returns:
            what `write` needs once it is on the device; None: nothing.
        """
        if not len(places):
            return None
        self._flat[places] = pages
        return None if self._is_shared else (places, pages)

    def write(self, places: torch.Tensor, pages: torch.Tensor) -> None:
        """Write changes, which have been brought to the device, to its copy: [N], [N]."""
        if places.numel():
            self.tensor.view(-1).index_copy_(0, places, pages)

    def slots(self, rows: Ints, positions: Ints) -> Ints:
        """Return where keys and values of tokens go, as page * page_size + offset: [T].

        Args:
            rows: of each token: [T].
            positions: of each token in its sequence: [T].
        """
        columns, offsets = np.divmod(positions, self.page_size)
        slots: Ints = self._host[rows, columns].astype(np.int64) * self.page_size + offsets
        return slots
