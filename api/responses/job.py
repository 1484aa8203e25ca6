"""One response while it is generated: runs the generation and fills the response object."""

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
    """A response, and the generation that it comes from.

    Args:
        generation: a generation of one choice that has not run yet.

    Attributes:
        response: the current response object.
        input: this turn's own items.
        tenant: tenant that owns the response.
        created_at: exact time of creation, which keeps responses in order.
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
        """The wait of its generation's choice."""
        return self._generation.choices[0].wait

    @property
    def has_restarted(self) -> bool:
        """Whether the last step made the earlier events void, because the output starts again."""
        return self._generation.choices[0].has_restarted

    async def steps(self, *, may_restart: bool = False) -> AsyncGenerator[list[Event], None]:
        """Run to the end; yield the events of each engine step, which may be none. Closing the iterator early aborts.

        Args:
            may_restart: whether the reader checks `has_restarted`.

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
        """Mark the response as failed; the output so far stays."""
        self._output.abandon()
        self._end("failed")
        self.response.error = failure(error)

    def cancel(self) -> None:
        """Mark the response as cancelled; the output so far stays."""
        self._output.abandon()
        self._end("cancelled")

    def _end(self, status: Status) -> None:
        self.response.status = status
        self.response.output = self._output.items


def failure(error: Exception) -> ResponseError:
    """Return the error of a failed response, for its object."""
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
