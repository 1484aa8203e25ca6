"""Keeps the tokens of some rows on the device, for logits processors.

Only rows whose processors need tokens have a place in the table. The height of the table is the largest
number of such rows so far, and its width is the length of the longest row so far. Both are rounded up.
"""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.step import Ints, RowTokens

from ..device.staging import Staging

LEAST_WIDTH = 256
LEAST_HEIGHT = 8


class TokenHistory:
    """Stores the tokens of rows, prompt and output. Takes 4 bytes per token.

    Args:
        staging: sends tokens to the device.
        device: device of the tokens.
    """

    def __init__(self, staging: Staging, device: torch.device) -> None:
        self._staging = staging
        self._table = torch.zeros((0, 0), dtype=torch.int32, device=device)
        self._places: dict[int, int] = {}  # row → row of the table
        self._free: list[int] = []

    def write(self, tokens: RowTokens) -> None:
        """Replace the tokens of a row."""
        if tokens.row not in self._places:
            if not self._free:
                self._grow(2 * len(self._table), 0)
            self._places[tokens.row] = self._free.pop()
        self._grow(0, len(tokens.token_ids) + 1)
        (sent,) = self._staging.send(tokens.token_ids)
        self._table[self._places[tokens.row], : len(sent)] = sent

    def drop(self, row: int) -> None:
        """Free the place of a row, if it has one."""
        if (place := self._places.pop(row, None)) is not None:
            self._free.append(place)

    def append(self, rows: Ints, positions: Ints, tokens: torch.Tensor) -> None:
        """Append a token to each of some rows.

        Args:
            rows: the rows, on the host: [R].
            positions: position of each token: [R].
            tokens: the tokens, on the device: [R].
        """
        self._grow(0, int(positions.max()) + 1)
        places = self._staging.send(self._places_of(rows), positions)
        self._table.index_put_(tuple(places), tokens.int())

    def read(self, rows: Ints, lengths: Ints) -> torch.Tensor:
        """Return the tokens of some rows, int64, padded with -1: [R, max(lengths)].

        Args:
            rows: the rows, on the host: [R].
            lengths: number of tokens of each row, on the host: [R].

        Raises:
            ValueError: the table has fewer tokens.
        """
        width = int(lengths.max())
        if width > self._table.shape[1]:
            raise ValueError(f"a row has {width} tokens, and at most {self._table.shape[1]} are kept")
        places, ends = self._staging.send(self._places_of(rows), lengths)
        found = self._table[:, :width].index_select(0, places).long()
        is_beyond = torch.arange(width, device=found.device) >= ends[:, None]
        return found.masked_fill_(is_beyond, -1)

    def _places_of(self, rows: Ints) -> Ints:
        return np.array([self._places[row] for row in rows.tolist()], dtype=np.int64)

    def _grow(self, height: int, width: int) -> None:
        """Enlarge the table to at least this height and width."""
        old_height, old_width = self._table.shape
        if height <= old_height and width <= old_width and old_height:
            return
        height = max(LEAST_HEIGHT, old_height, height)
        width = max(LEAST_WIDTH, old_width, 1 << max(width - 1, 0).bit_length())
        table = self._table.new_zeros((height, width))
        table[:old_height, :old_width] = self._table
        self._table = table
        self._free += range(old_height, height)
