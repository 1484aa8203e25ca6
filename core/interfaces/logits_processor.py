"""The interface of a logits processor, which changes the logits of the requests that ask for it.

    logits of a step   [ a  b  c  d  e ]        b and d ask for the processor
    process()               [ b  d ]            once for each step, with a copy of their rows
    sampled            [ a  b' c  d' e ]

Processors run last: after grammars, penalties, bias and banned tokens, and before temperature, top_k, top_p
and min_p. So a processor sees which tokens are allowed, and cannot allow others: a logit of minus infinity
stays so.

A faulty processor ends only requests that ask for it. If `process` raises, returns something other than
logits, or leaves a row with NaN, with infinity or without an allowed token, the requests of these rows end
with an error that names the plugin. The log gives the reason. Importing this module does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class ProcessorContext(ABC):
    """The model and the device that a processor works for.

    Attributes:
        vocab_size: width of the logits.
        device: device of the logits.
    """

    vocab_size: int
    device: torch.device

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token's text; the name of a special token; b"" for an id without a token.

        The first call reads the model's tokenizer, which may take a second. So call it in the constructor if
        the processor needs it.
        """


@dataclass(frozen=True, slots=True)
class ProcessedRequest:
    """A request, as a logits processor may know it.

    Attributes:
        fields: values of request fields, by name (see `RequestField`). A field that the client left out, and
            that has no default, is not in it.
        prompt_len: number of the prompt's tokens.
        stop_token_ids: tokens that end the output, ascending.
    """

    fields: Mapping[str, Any]
    prompt_len: int
    stop_token_ids: tuple[int, ...]


class ProcessedRows(ABC):
    """The R rows of one call of `process`. Valid during the call only.

    Attributes:
        states: the state that `begin` returned for the request of each row: [R].
        prompt_lens: number of prompt tokens of each row, int64, on the host: [R].
        positions: position of the token to sample, which is the number of tokens so far, prompt and output,
            int64, on the host: [R].
    """

    states: Sequence[Any]
    prompt_lens: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]

    @abstractmethod
    def tokens(self) -> torch.Tensor:
        """Return the tokens so far, prompt and output, int64, on the device: [R, max(positions)].

        Row r has `positions[r]` tokens from the left, and then -1. The caller may change the tensor. Only for
        processors with `needs_tokens`.
        """

    @abstractmethod
    def uniform(self, stream: int = 0) -> torch.Tensor:
        """Return a random number in [0, 1) for each row, float64, on the device: [R].

        A number depends only on the request's seed, the position, the processor's name and `stream`. A
        processor that needs several numbers for a row uses several streams.
        """

    @abstractmethod
    def send(self, *arrays: npt.NDArray[Any]) -> list[torch.Tensor]:
        """Return arrays of the host as tensors on the device, without waiting for the device.

        All arrays are sent by one copy. Takes int64, int32, float64, float32 and bool. The tensors may share
        the arrays' memory.
        """


class LogitsProcessor(ABC):
    """Changes the logits of rows that ask for it. Chosen by `--logits-processors NAME,NAME`.

    The engine builds one object of each chosen class when it starts, after the weights have been read, and
    calls it in its main thread. Several processors run in the order in which the option names them.

    The result of `process` for a row may depend only on the row's logits, tokens, state, positions and random
    numbers. Then a request with a seed gets the same tokens, independent of other requests.

    Args:
        context: the model and the device.
        options: the processor's own options, an instance of its `Options`.

    Attributes:
        context, options: the constructor's arguments.
        needs_tokens: whether `process` calls `rows.tokens`. llmfw then keeps the tokens of rows that ask on
            the device. Each of these rows takes 4 bytes for each token of the longest one.
    """

    needs_tokens: ClassVar[bool] = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o logits_processor.NAME.key=value`. A processor with options
        overrides this."""

    def __init__(self, context: ProcessorContext, options: Options) -> None:
        """Prepare the processor. Raise ConfigError if it cannot work with this model or device."""
        self.context = context
        self.options = options

    @abstractmethod
    def begin(self, request: ProcessedRequest) -> Any:
        """Return the state of a request, such as its arguments; None if it does not ask for the processor.

        Called when the request arrives, and each time it gets a place in the batch, for example after a
        retraction. So equal requests must give equal states, and a state must not change. All other requests
        wait for the call, so it must return within microseconds.

        Raises:
            RequestError: the request is wrong. The client gets a 400 with the error's message. For any other
                exception, the client gets a 500 that names the plugin. Other requests go on.
        """

    @abstractmethod
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        """Return the logits to sample from: float32, on the same device: [R, vocab].

        Called once for each step with rows that ask, or several times if these rows have more than 16,777,216
        logits in total. Minus infinity forbids a token; at least one token of each row must stay allowed.

        Must not wait for the device, as `item()`, `tolist()`, `nonzero()` and boolean indices do, because the
        engine prepares the next step meanwhile. The number of operations should not depend on the number of
        rows. The caller holds `torch.inference_mode()`.

        Args:
            logits: copy of the rows' logits, float32: [R, vocab]. It may be changed, and returned.
            rows: the rows.
        """
