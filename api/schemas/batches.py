"""Bodies of `/v1/batches`, and the lines of batch input, output and error files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .common import Body

Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


class OutputExpiresAfter(Body, kw_only=True):
    """When a batch's output and error files expire: `seconds` after their creation."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, msgspec.Meta(ge=3600, le=2592000)]


class CreateBatchRequest(Body, kw_only=True):
    """Body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: OutputExpiresAfter | None = None


class BatchErrorEntry(msgspec.Struct, kw_only=True):
    """One error of a batch. `line` is null if the error concerns the whole file or the whole batch."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(msgspec.Struct, kw_only=True):
    """The errors of a batch."""

    object: str = "list"
    data: list[BatchErrorEntry]


class RequestCounts(msgspec.Struct, kw_only=True):
    """How many requests of a batch exist, succeeded and failed; each line of the input file is one request."""

    total: int
    completed: int
    failed: int


class InputTokensDetails(msgspec.Struct):
    """Breakdown of the input tokens."""

    cached_tokens: int


class OutputTokensDetails(msgspec.Struct):
    """Breakdown of the output tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    """Token counts of a batch."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Batch(msgspec.Struct, kw_only=True):
    """The state of a batch.

    Values that are not known yet are null, as with OpenAI, except `model` and `usage`, which are omitted.
    """

    id: str
    object: str = "batch"
    endpoint: str
    model: str | UnsetType = UNSET
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: Usage | UnsetType = UNSET
    metadata: dict[str, str] | None


class BatchList(msgspec.Struct, kw_only=True):
    """A page of batches. `first_id` and `last_id` are null if it is empty."""

    object: str = "list"
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputLine(msgspec.Struct):
    """A line of the input file.

    Fields of any type are accepted here, so that each can be checked separately.
    """

    custom_id: Any = UNSET
    method: Any = UNSET
    url: Any = UNSET
    body: Raw | UnsetType = UNSET


class LineResponse(msgspec.Struct, kw_only=True):
    """The endpoint's reply to a line.

    Attributes:
        ignored_params: fields of the line's body that had no effect; omitted if there are none.
    """

    status_code: int
    request_id: str
    body: Raw
    ignored_params: list[str] | UnsetType = UNSET


class LineError(msgspec.Struct, kw_only=True):
    """The reason why a line was not run."""

    code: str
    message: str


class OutputLine(msgspec.Struct, kw_only=True):
    """A line of the output or error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None
