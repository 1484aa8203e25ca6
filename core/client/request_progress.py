"""Tracks the output that a request's reader has received, and the rest to request from the next engine."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import msgspec

from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.base.seeds import derive_seed


class Continuations:
    """Gives each request without a seed one, so that another engine can continue it with the same tokens.

    Args:
        random_seed: seed from which the others are derived (`--random-seed`).

    Attributes:
        count: number of continuations of requests.
    """

    def __init__(self, random_seed: int) -> None:
        self.count = 0
        self._random_seed = random_seed
        self._num_drawn = 0

    def draw_seed(self) -> int:
        """Return another seed."""
        self._num_drawn += 1
        return derive_seed(self._random_seed, self._num_drawn - 1)


class RequestProgress:
    """A request on its way from engine to engine.

    Args:
        request: the client's request.
        continuations: draws the request's seed; None: requests with output are not continued.
        digest_of: returns the hash of the files of a loaded adapter, by its name; None: the adapter is not
            loaded.
        num_loads: returns the number of times that the weights were replaced.

    Attributes:
        sent: the output that the reader has received. The caller extends it by the tokens of each event.
    """

    def __init__(
        self,
        request: Request | EmbedRequest,
        continuations: Continuations | None,
        digest_of: Callable[[str], str | None] = lambda name: None,
        num_loads: Callable[[], int] = lambda: 0,
    ) -> None:
        self._num_loads = num_loads
        self._of_load = num_loads()
        self._digest_of = digest_of
        self._adapter = request.adapter if isinstance(request, Request) else ""
        self._digest = digest_of(self._adapter) if self._adapter else None
        self._continuations = continuations
        self._can_continue = continuations is not None and isinstance(request, Request)
        if continuations is not None and isinstance(request, Request) and request.sampling.seed is None:
            sampling = msgspec.structs.replace(request.sampling, seed=continuations.draw_seed())
            request = msgspec.structs.replace(request, sampling=sampling)
        self._request = request
        self.sent = array("q")

    @property
    def continues(self) -> bool:
        """Whether another engine can continue the request after the output that its reader has received.

        If not, the output starts over.
        """
        return self._can_continue and not self.is_void()

    def is_void(self) -> bool:
        """Return whether the output that the reader has received is of weights that have been replaced."""
        if not self.sent:
            self._of_load = self._num_loads()
        return self._of_load != self._num_loads()

    @property
    def rest(self) -> Request | EmbedRequest:
        """The request to send to the next engine.

        Raises:
            EngineDeadError: the request has output, and its adapter has been replaced or unloaded since.
        """
        if not (self.sent and self.continues) or isinstance(self._request, EmbedRequest):
            return self._request
        if self._adapter and self._digest_of(self._adapter) != self._digest:
            raise EngineDeadError(
                f"the engine has ended, and the adapter {self._adapter!r:.100} of this request was replaced or unloaded meanwhile; "
                "send the request again"
            )
        return continued(self._request, self.sent)

    def interrupt(self) -> TokenEvent | None:
        """Record that the engine has ended after it had begun to answer.

        Returns:
            The event that voids all earlier events; None if the request is continued.
        """
        if not self.continues:
            self.sent = array("q")
            return TokenEvent(self._request.id, [], restarted=True)
        assert self._continuations is not None
        self._continuations.count += 1
        return None


def continued(request: Request, output: Sequence[int]) -> Request:
    """Return a request that continues after a given part of the output.

    Args:
        output: the tokens of all events so far, at least one. The first event also contained the results that
            are reported once, such as the log probabilities of the prompt.
    """
    return msgspec.structs.replace(
        request,
        output=[*request.output, *output],
        prompt_logprobs=None,
        prompt_logprobs_start=1,
        prompt_logprob_token_ids=(),
        tell_wait=False,
    )
