"""Validates the input file of a batch job. One invalid line rejects the whole file.

Of a line's body, only `model`, `stream` and `background` are checked here: mistakes in them usually affect
every line. The rest of the body is checked when the line runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from llmfw.api.schemas.batches import InputLine
from llmfw.api.server.limits import BodyLimits
from llmfw.core.interfaces.batch_store import BatchError
from llmfw.core.interfaces.file_store import FileStore

from .input_lines import MAX_LINE, InputGoneError, LongLine, read_lines
from .line_decoding import decode_line, without_halves
from .line_limits import TooLarge, why_too_large

MAX_LINES = 50_000
MAX_BYTES = 200 * 2**20
MAX_CUSTOM_ID = 512  # characters
MAX_ERRORS = 10_000  # entries; one more gives the number of further errors


class _CheckedFields(msgspec.Struct):
    """The fields of a line's body that are checked here."""

    model: Any = None
    stream: Any = None
    background: Any = None


_decode_fields = msgspec.json.Decoder(_CheckedFields).decode


class Verdict(msgspec.Struct, frozen=True):
    """The result of validating an input file.

    Attributes:
        num_lines: number of lines that are not blank.
        errors: problems of the file; empty if the file can be run.
        model: served name of the model that all lines are for.
        adapters: hashes of the files of the adapters that lines name, by their names.
    """

    num_lines: int
    errors: tuple[BatchError, ...]
    model: str = ""
    adapters: Mapping[str, str] = {}


class LineError(Exception):
    """A line of the input file is invalid."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class LineModels(Protocol):
    """The models and the adapters that lines may name."""

    @property
    def served_names(self) -> Sequence[str]:
        """The served names."""

    def is_named(self, model: str) -> bool:
        """Return whether lines may use this name."""

    def served_name(self, model: str | None) -> str:
        """Return the served name of the model that a line names; None: of the first model."""

    def reason_against_model(self, path: str, model: str) -> str | None:
        """Return why an endpoint cannot use the model with a served name; None if it can."""

    def adapter_of(self, model: str) -> tuple[str, str] | None:
        """Return the adapter that a name means, and the hash of its files; None: the model without one."""


async def validate(
    files: FileStore, file_id: str, endpoint: str, models: LineModels, limits: BodyLimits
) -> Verdict:
    """Validate an input file and return the result.

    Args:
        endpoint: path of the job's endpoint, with `/v1`.
        models: the models and the adapters that lines may name.
        limits: limits on the size and structure of each line.

    Raises:
        StorageError: the file cannot be read now.
    """
    try:
        size = (await files.get(file_id)).bytes
    except KeyError:
        return _rejected("file_not_found", f"the input file {file_id!r} is not there any more")
    if size > MAX_BYTES:
        return _rejected(
            "file_too_large", f"the input file has {size} bytes; at most {MAX_BYTES} are allowed"
        )
    validator = Validator(endpoint, models)
    try:
        async for number, line in read_lines(files, file_id):
            validator.look(number, line, await why_too_large(line, limits))
            if validator.num_lines > MAX_LINES:
                return _rejected(
                    "too_many_tasks",
                    f"the input file has more than {MAX_LINES} requests: cut it into several",
                )
    except InputGoneError as error:
        return _rejected("file_not_found", str(error))
    return validator.verdict()


def _rejected(code: str, message: str) -> Verdict:
    return Verdict(0, (BatchError(code=code, message=message),))


class Validator:
    """Validates the lines of an input file one by one.

    Stores hashes of custom ids rather than the ids themselves, which may be long and many.
    """

    def __init__(self, endpoint: str, models: LineModels) -> None:
        self.num_lines = 0
        self._endpoint = endpoint
        self._urls = {endpoint, endpoint.removeprefix("/v1")}
        self._models = models
        self._model: str | None = None  # served name of the first line's model
        self._seen: set[bytes] = set()
        self._errors: list[BatchError] = []
        self._num_errors = 0
        self._adapters: dict[str, str] = {}

    def look(self, number: int, line: bytes | LongLine, too_large: TooLarge | None = None) -> None:
        """Validate the next line, and record its error if it has one.

        Args:
            number: number of the line in the file, from 1.
            too_large: limit that the line exceeds, so that it is not decoded; None if it exceeds none.
        """
        self.num_lines += 1
        try:
            if too_large is not None:
                raise LineError(too_large.code, too_large.reason)
            self._check(line)
        except LineError as error:
            self._num_errors += 1
            if len(self._errors) < MAX_ERRORS:
                entry = BatchError(code=error.code, message=str(error), line=number, param=error.param)
                self._errors.append(entry)

    def verdict(self) -> Verdict:
        """Return the result for the whole file. Call this once, after the last line."""
        if not self.num_lines:
            return _rejected("empty_file", "the input file is empty; it needs at least one request")
        more = self._num_errors - len(self._errors)
        if more:
            self._errors.append(BatchError(code="too_many_errors", message=f"{more} more lines are wrong"))
        model = self._model or self._models.served_name(None)
        return Verdict(self.num_lines, tuple(self._errors), model, self._adapters)

    def _check(self, raw: bytes | LongLine) -> None:
        if isinstance(raw, LongLine):
            raise LineError("line_too_long", f"this line has more than {MAX_LINE} bytes")
        line = _decoded(raw)
        custom_id = _text("custom_id", line.custom_id)
        if not 1 <= len(custom_id) <= MAX_CUSTOM_ID:
            raise LineError(
                "invalid_custom_id",
                f"custom_id has {len(custom_id)} characters; it must have 1 to {MAX_CUSTOM_ID}",
                "custom_id",
            )
        digest = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._seen:
            raise LineError(
                "duplicate_custom_id",
                f"custom_id {custom_id[:100]!r} is that of an earlier line; each must be unique in its file",
                "custom_id",
            )
        self._seen.add(digest)
        method, url = _text("method", line.method), _text("url", line.url)
        if method != "POST":
            raise LineError("invalid_method", f"method is {method[:100]!r}; it must be 'POST'", "method")
        if url not in self._urls:
            raise LineError(
                "url_mismatch", f"url is {url[:100]!r}; this batch's endpoint is {self._endpoint!r}", "url"
            )
        self._check_body(line)

    def _check_body(self, line: InputLine) -> None:
        if line.body is UNSET:
            raise LineError("missing_required_parameter", "body is missing; it is required", "body")
        try:
            body = _decode_fields(without_halves(bytes(line.body)))
        except ValueError as error:
            raise LineError("invalid_request", f"body must be an object: {error}", "body") from error
        if body.model is None or isinstance(body.model, str):
            self._check_model(body.model)
        if body.stream is True:
            raise LineError("invalid_request", "stream is true; a batch has no streams", "body.stream")
        if body.background is True:
            raise LineError(
                "invalid_request",
                "background is true; a batch runs in the background as a whole",
                "body.background",
            )

    def _check_model(self, model: str | None) -> None:
        """Refuse a model that is not served or not that of earlier lines; note the adapter that it means."""
        if model is not None and not self._models.is_named(model):
            known = ", ".join(map(repr, self._models.served_names))
            raise LineError(
                "model_not_found", f"there is no model {model[:200]!r}; this server has {known}", "body.model"
            )
        served = self._models.served_name(model)
        if self._model is None:
            if reason := self._models.reason_against_model(self._endpoint, served):
                raise LineError("unsupported_operation", reason, "body.model")
            self._model = served
        if served != self._model:
            raise LineError(
                "several_models",
                f"this line is for model {served!r}, and an earlier one for {self._model!r}; create a batch for each model",
                "body.model",
            )
        if model is not None and (adapter := self._models.adapter_of(model)):
            name, digest = adapter
            if self._adapters.setdefault(name, digest) != digest:
                raise LineError(
                    "adapter_changed",
                    f"the adapter {name!r} was replaced while the file was validated; create the batch again",
                    "body.model",
                )


def _decoded(raw: bytes) -> InputLine:
    try:
        return decode_line(raw)
    except msgspec.ValidationError as error:
        raise LineError("invalid_json_line", f"this line is not a JSON object: {error}") from error
    except (ValueError, RecursionError) as error:
        raise LineError("invalid_json_line", f"this line is not valid JSON: {error}") from error


def _text(name: str, value: Any) -> str:
    if value is UNSET or value is None:
        raise LineError("missing_required_parameter", f"{name} is missing; it is required", name)
    if not isinstance(value, str):
        raise LineError("invalid_request", f"{name} must be a string", name)
    return value
