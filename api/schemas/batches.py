"""Bodies of `/v1/batches`, and the lines of the files that go in and come out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .common import Body

Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


class OutputExpiresAfter(Body, kw_only=True):
    """When a job's files expire: so many seconds after they are made."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, msgspec.Meta(ge=3600, le=2592000)]


class CreateBatchRequest(Body, kw_only=True):
    """Asks for a job."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: OutputExpiresAfter | None = None


class BatchErrorEntry(msgspec.Struct, kw_only=True):
    """What is wrong with the input file, or a line of it."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(msgspec.Struct, kw_only=True):
    """All that is wrong."""

    object: str = "list"
    data: list[BatchErrorEntry]


class RequestCounts(msgspec.Struct, kw_only=True):
    """Of a job's lines."""

    total: int
    completed: int
    failed: int


class InputTokensDetails(msgspec.Struct):
    """What is known of the prompts' tokens."""

    cached_tokens: int


class OutputTokensDetails(msgspec.Struct):
    """What is known of the new tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    """Token counts of a job."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Batch(msgspec.Struct, kw_only=True):
    """A job. What is not known yet is null, as OpenAI sends it; `model` and `usage` are absent then."""

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
    """A page of jobs. The ids are null where it is empty."""

    object: str = "list"
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputLine(msgspec.Struct):
    """A line of the input file. Nothing is asked of its fields, so that each can be judged by itself."""

    custom_id: Any = UNSET
    method: Any = UNSET
    url: Any = UNSET
    body: Raw | UnsetType = UNSET


class LineResponse(msgspec.Struct, kw_only=True):
    """What the endpoint answered.

    Attributes:
        ignored_params: fields of the body that changed nothing; absent if there are none.
    """

    status_code: int
    request_id: str
    body: Raw
    ignored_params: list[str] | UnsetType = UNSET


class LineError(msgspec.Struct, kw_only=True):
    """Why a line was not run."""

    code: str
    message: str


class OutputLine(msgspec.Struct, kw_only=True):
    """A line of the output or error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None
