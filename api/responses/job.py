"""Runs the generation of one response, and fills the response object."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence

from llmfw.api.http.errors import body_of
from llmfw.api.schemas.responses import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
)
from llmfw.api.text.generation import Generation
from llmfw.api.text.usage import usage_of
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Wait

from .items import Item
from .output import Event, Output


class Job:
    """One response and the generation that produces it.

    Args:
        generation: a generation with one choice, which has not run yet.

    Attributes:
        response: the response object in its current state.
        input: input items of this turn, without those of earlier turns.
        tenant: tenant that owns the response.
        created_at: time of creation in seconds since the epoch, with fractions, by which responses are
            ordered.
    """

    def __init__(
        self, response: Response, input: Sequence[Item], generation: Generation, tenant: str
    ) -> None:
        self.response = response
        self.input = input
        self.tenant = tenant
        self.created_at = time.time()
        self._generation = generation
        self._output = Output(response.id)

    @property
    def wait(self) -> Wait | None:
        """The engine's estimate of the wait, until the first token arrives; None if there is none."""
        return self._generation.choices[0].wait

    @property
    def has_restarted(self) -> bool:
        """Whether the last step invalidated all earlier events, because the output starts again."""
        return self._generation.choices[0].has_restarted

    async def steps(self, *, may_restart: bool = False) -> AsyncGenerator[list[Event], None]:
        """Run the generation; yield the list of events of each engine step, which may be empty.

        Closing the iterator before its end aborts the generation.

        Args:
            may_restart: whether the caller checks `has_restarted`, and drops earlier events if it is true.

        Raises:
            LLMFWError: as in `Generation.events`.
        """
        async with contextlib.aclosing(self._generation.events(may_restart=may_restart)) as steps:
            async for _, deltas in steps:
                if self.has_restarted:
                    self._output = Output(self.response.id)
                yield [event for delta in deltas for event in self._output.add(delta)]
        if self._generation.choices[0].text.finish_reason == "length":
            yield list(self._output.finish("incomplete"))
            self._end("incomplete")
            self.response.incomplete_details = IncompleteDetails()
        else:
            yield list(self._output.finish("completed"))
            self._end("completed")
            self.response.completed_at = int(time.time())
        self.response.usage = _usage(self._generation)

    def fail(self, error: Exception) -> None:
        """Mark the response as failed. It keeps the output so far."""
        self._output.abandon()
        self._end("failed")
        self.response.error = failure(error)

    def cancel(self) -> None:
        """Mark the response as cancelled. It keeps the output so far."""
        self._output.abandon()
        self._end("cancelled")

    def _end(self, status: Status) -> None:
        self.response.status = status
        self.response.output = self._output.items


def failure(error: Exception) -> ResponseError:
    """Convert an exception to the `error` field of a failed response."""
    code = "invalid_prompt" if isinstance(error, RequestError) else "server_error"
    return ResponseError(code=code, message=body_of(error).error.message)


def _usage(generation: Generation) -> ResponseUsage:
    usage = usage_of(generation)
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )
