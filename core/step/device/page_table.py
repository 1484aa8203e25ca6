"""The scheduler's page table, where the device can read it. It knows neither sequences nor who owns a page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.schedule.clean_places import CleanPlaces
from llmfw.core.schedule.sequence_table import Ints

Pages = npt.NDArray[np.int32]


class PageTable:
    """A page table on the host, and the same on the device.

    On a CPU they are one. Elsewhere the device has a copy, in which each step writes what has changed of its own rows;
    such writes are in the order of the device's work, so a row may change on the host while a launched step still reads
    it. The copy has one row more, for sequences that are padding: all its pages are one that the scheduler does not
    have.

    Args:
        host: the scheduler's, [R, most pages of a sequence].
        clean: of the host's rows. Nobody else takes from it.
        page_size: tokens in one page.
        device: where steps run.
        padding_page: the last row's page.
        is_shared: host and device have one memory; None: on a CPU.

    Attributes:
        host: as given.
        page_size: as given.
        tensor: on the device, [R + 1, most pages of a sequence], int32; [R, …] where it is the host's.
        padding_row: which row of `tensor` is for padding.
        padding_slot: where the key and value of padding go.
    """

    def __init__(
        self,
        host: Pages,
        clean: CleanPlaces,
        page_size: int,
        device: torch.device,
        *,
        padding_page: int = 0,
        is_shared: bool | None = None,
    ) -> None:
        self.host = host
        self.page_size = page_size
        self.padding_row = len(host)
        self.padding_slot = padding_page * page_size
        self._clean = clean
        self._no_changes = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._is_shared = device.type == "cpu" if is_shared is None else is_shared
        if self._is_shared:
            self.tensor = torch.from_numpy(host)
        else:
            shape = (len(host) + 1, host.shape[1])
            self.tensor = torch.zeros(shape, dtype=torch.int32, device=device)
            self.tensor[self.padding_row] = padding_page

    def take_changes(self, rows: Ints, lengths: Ints) -> tuple[Ints, Pages]:
        """Return what `write` has to write for these rows to be right as far as their tokens reach.

        Args:
            rows: each once, [B].
            lengths: tokens of each, [B].

        Returns:
            places, counted through all rows, and the pages there: [N], [N].
        """
        if self._is_shared:
            return self._no_changes
        changed, places = self._clean.take(rows, -(-lengths // self.page_size))
        return changed * self.host.shape[1] + places, self.host[changed, places]

    def write(self, places: torch.Tensor, pages: torch.Tensor) -> None:
        """Write changes, which have been brought to the device, into its copy: [N], [N]."""
        if places.numel():
            self.tensor.view(-1).index_copy_(0, places, pages)
