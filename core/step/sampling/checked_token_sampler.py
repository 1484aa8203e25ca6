"""Calls a plugin's token sampler, and checks its result without waiting for the device."""

from __future__ import annotations

import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers, TokenSampler
from llmfw.core.plugin.choice import Created
from llmfw.core.plugin.returned import WrongReturnError


class CheckedTokenSampler(TokenSampler):
    """Wraps a token sampler, and checks its results.

    Args:
        chosen: the token sampler, with its registry entry.
    """

    def __init__(self, chosen: Created[TokenSampler]) -> None:
        inner = chosen.component
        super().__init__(inner.vocab_size, inner.device, may_wait=inner.may_wait)
        self.small_top_k = inner.small_top_k
        self._inner = inner
        self._entry = chosen.entry

    @classmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        """Return None: the wrapped token sampler is known to work."""
        return None

    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        """Return a token id for each row: [S].

        Raises:
            WrongReturnError: the result has the wrong type, shape, layout, dtype or device; or, on a CPU, an
                invalid token id. Token ids are checked only on a CPU: on other devices the check would force
                a synchronization.
        """
        with torch.inference_mode():  # restores the mode, which the token sampler may leave
            found = self._inner.sample(logits, numbers, filters)
        if not isinstance(found, torch.Tensor):
            raise WrongReturnError(f"sample() returned a {type(found).__name__}, not the tokens", self._entry)
        if found.layout != torch.strided or found.is_nested:
            raise WrongReturnError(
                "sample() returned tokens in another layout; they must be dense", self._entry
            )
        given = (list(found.shape), found.dtype, found.device)
        asked = ([len(logits)], torch.int64, logits.device)
        if given != asked:
            words = (
                f"{shape} {str(dtype).removeprefix('torch.')} on {device}"
                for shape, dtype, device in (given, asked)
            )
            raise WrongReturnError(
                "sample() returned tokens of {}; they must be {}".format(*words), self._entry
            )
        if found.device.type == "cpu" and len(found):
            self._check_ids(found)
        return found

    def _check_ids(self, tokens: torch.Tensor) -> None:
        least, largest = (int(bound) for bound in torch.aminmax(tokens))
        if least < 0 or largest >= self.vocab_size:
            wrong = least if least < 0 else largest
            raise WrongReturnError(
                f"sample() returned the token id {wrong}; ids are from 0 to {self.vocab_size - 1}",
                self._entry,
            )
