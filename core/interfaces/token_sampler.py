"""The interface of a token sampler, which draws a token from each row of logits.

llmfw has applied masks, penalties, biases and logits processors to the logits. A token sampler does not get
rows that take the most likely token. A token sampler is independent of requests and sequences, and draws no
random numbers of its own. Importing this module does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class RowNumbers(NamedTuple):
    """Sampling parameters of each row, on the device.

    Attributes:
        draws: random numbers from 0 to 1 - 2**-32, float64: [S].
        temperature: divisors of the logits, at least 1e-5, float32: [S, 1].
        top_k: number of most likely tokens to keep, int64: [S, 1]. If not set by the request, it is the
            vocabulary size.
        top_p: probability to keep, float32: [S, 1]. If not set by the request, it is 2, which exceeds any sum
            of rounded probabilities.
        min_p: least probability to keep, relative to the most likely token, float32: [S, 1]. If not set by
            the request, it is 0.
    """

    draws: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor

    def of(self, places: torch.Tensor | slice) -> RowNumbers:
        """Return the parameters of some rows."""
        return RowNumbers(*(column[places] for column in self))


class Filters(NamedTuple):
    """Filters that at least one row of a call uses. The others can be skipped.

    Attributes:
        top_k, top_p, min_p: whether any row uses this filter.
        largest_top_k: largest top_k of the rows; the vocabulary size if a row has none.
    """

    top_k: bool
    top_p: bool
    min_p: bool
    largest_top_k: int


class TokenSampler(ABC):
    """Draws a token from each row of logits.

    llmfw builds one token sampler when it loads a model. In a step, it calls `sample` once for all rows that
    need it, or at most three times: for rows without filters, for rows whose top_k is at most `small_top_k`,
    and for the others.

    Args:
        vocab_size: width of the logits.
        device: device of the logits.
        may_wait: whether host and device share their memory, so that `sample` may read results on the host.
            If False, it must not wait for the device.

    Attributes:
        small_top_k: largest top_k of the rows that are sampled by a separate call; 0: no separate call.
        vocab_size, device, may_wait: the constructor's arguments.
    """

    small_top_k = 0

    def __init__(self, vocab_size: int, device: torch.device, *, may_wait: bool) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.may_wait = may_wait

    @classmethod
    @abstractmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        """Return why this token sampler cannot sample logits of this width on this device; None if it can.

        The reason is a sentence for the log and for errors, such as "it needs an NVIDIA GPU".
        """

    @abstractmethod
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        """Draw a token from each row, without changing the logits.

        Softmax of logits / temperature gives the probabilities. The filter top_k keeps the most likely
        tokens; it may also keep tokens that tie with the last of these. The filter top_p scales the
        probabilities of the tokens that top_k has kept to a sum of 1, and keeps the most likely tokens up to
        the first at which the cumulative sum reaches top_p. The filter min_p keeps tokens that are at least
        min_p times as likely as the most likely token. The probabilities of the kept tokens are scaled to a
        sum of 1. The row's draw then selects the token at which their cumulative sum exceeds the draw. The
        order of tokens in this sum must not depend on other rows.

        A row whose probabilities are NaN gets any valid token.

        Args:
            logits: logits, float32: [S, vocab_size].
            numbers: parameters of the rows.
            filters: filters that the rows use.

        Returns:
            Token ids, int64, on the device: [S].
        """


__all__ = ["Filters", "RowNumbers", "TokenSampler"]
