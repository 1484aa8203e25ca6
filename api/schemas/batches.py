"""Bodies of `/v1/batches`, and the lines of input and output files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .common import Body

Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


class OutputExpiresAfter(Body, kw_only=True):
    """Lifetime of a job's files: `seconds` after they are created."""

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
    """An error in the input file or one of its lines."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(msgspec.Struct, kw_only=True):
    """All errors."""

    object: str = "list"
    data: list[BatchErrorEntry]


class RequestCounts(msgspec.Struct, kw_only=True):
    """Numbers of a job's lines."""

    total: int
    completed: int
    failed: int


class InputTokensDetails(msgspec.Struct):
    """Details of the prompts' token count."""

    cached_tokens: int


class OutputTokensDetails(msgspec.Struct):
    """Details of the output's token count."""

    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    """Token counts of a job."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Batch(msgspec.Struct, kw_only=True):
    """A batch job. Unknown values are null, as in OpenAI's replies; `model` and `usage` are then absent."""

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
    """A page of jobs. The ids are null if it is empty."""

    object: str = "list"
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputLine(msgspec.Struct):
    """A line of the input file. The types of its fields are open, so that each can be checked by itself."""

    custom_id: Any = UNSET
    method: Any = UNSET
    url: Any = UNSET
    body: Raw | UnsetType = UNSET


class LineResponse(msgspec.Struct, kw_only=True):
    """The endpoint's answer to a line.

    Attributes:
        ignored_params: fields of the body that changed nothing; absent if there are none.
    """

    status_code: int
    request_id: str
    body: Raw
    ignored_params: list[str] | UnsetType = UNSET


class LineError(msgspec.Struct, kw_only=True):
    """Reason why a line did not run."""

    code: str
    message: str


class OutputLine(msgspec.Struct, kw_only=True):
    """A line of the output or error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None
