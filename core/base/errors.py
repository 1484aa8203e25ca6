"""Exceptions that llmfw raises for a reason a user can act on.

    LLMFWError
    ├── ConfigError            a flag, a file or a combination of them that cannot work
    │   ├── UnknownComponentError   a component was asked for by a name that no plugin registers
    │   │   └── LostComponentError  a plugin that did not load probably would have
    │   ├── ModelError         a model folder that is not one, or a model that cannot be served
    │   └── ComponentError          a component that is registered but cannot be imported, built or used here
    ├── PluginError            a plugin package that is broken (raised only in strict mode)
    ├── RequestError           a request that is wrong: says which parameter, what it was and what would be right
    │   ├── ContextLengthError more tokens than the model or the pool can hold
    │   ├── ModelNotFoundError a model name that this server does not serve
    │   ├── NotFoundError      an id of something that is not, or no longer, stored here
    │   ├── GrammarCostError   a grammar that takes too much time, memory or depth
    │   ├── TooLargeError      more bytes than the limit
    │   └── ConflictError      an operation in progress rules the request out
    ├── StorageError           a store cannot do this now; a retry may succeed
    │   ├── StorageFullError   a store has no space left
    │   └── ContentLostError   the bytes of what is stored are gone or damaged
    ├── OverloadedError        the queue is full; a retry may succeed
    │   └── TenantLimitError   one key or user has reached its limit of requests
    ├── DeadlineError          a request's own timeout has passed
    ├── ComponentFailedError        a component raised an unexpected exception while it served a request
    └── EngineError            the engine could not finish what it had accepted
        ├── CrashingRequestError  a request that repeatedly ended the engine
        └── EngineDeadError    the engine process has ended
            ├── EngineRestartingError  it is being started again
            └── EngineLostError  it is not started again: the server ends

The API maps them to HTTP status codes in one table (`api/http/errors.py`); this module knows nothing of HTTP.
"""

from __future__ import annotations


class LLMFWError(Exception):
    """Base of all errors that carry a message meant for the user."""


class ConfigError(LLMFWError):
    """The server or engine cannot start with these settings."""


class UnknownComponentError(ConfigError):
    """No plugin registers the component that was asked for."""


class LostComponentError(UnknownComponentError):
    """No plugin registers the component that was asked for, because the one that would did not load."""


class ModelError(ConfigError):
    """The model cannot be found, read, or served correctly."""


class ComponentError(ConfigError):
    """A registered component cannot be imported or cannot do what this model and device need."""


class PluginError(LLMFWError):
    """A plugin package is broken, and strict mode does not allow that."""


class RequestError(LLMFWError):
    """A request is wrong.

    Args:
        message: what is wrong and what would be right, with the value.
        param: name of the parameter at fault, as the client wrote it (`stop[2]`, `logit_bias`), or None.
        code: a short machine-readable reason, or None.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    """Prompt and requested output do not fit into the context."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class GrammarCostError(RequestError):
    """A grammar, schema or regular expression takes too much time, memory or depth."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "grammar_too_complex") -> None:
        super().__init__(message, param=param, code=code)


class ModelNotFoundError(RequestError):
    """The request names a model that is not served here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model", code="model_not_found")


class NotFoundError(RequestError):
    """The request names something that does not exist here, or no longer."""


class TooLargeError(RequestError):
    """The request has more bytes than the limit; the message states the limit."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="request_too_large")


class ConflictError(RequestError):
    """The request conflicts with an operation in progress; the message names the operation.

    Args:
        passing: whether the operation ends soon, so that the same request, sent again, may succeed.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, passing: bool = False
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.passing = passing


class StorageError(LLMFWError):
    """A store could not do the operation, and changed nothing; the message gives the reason."""


class StorageFullError(StorageError):
    """A store has no space for the data."""


class ContentLostError(StorageError):
    """A store knows a file, but its bytes are gone or damaged. A retry does not help."""


class OverloadedError(LLMFWError):
    """The queue is full; the engine has not started the request.

    Args:
        retry_after_s: estimated seconds until the queue has room.
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TenantLimitError(OverloadedError):
    """A tenant has reached its limit of requests."""


class DeadlineError(LLMFWError):
    """The request's own timeout has passed; the message states the progress of the request."""


class ComponentFailedError(LLMFWError):
    """A component of a plugin raised while it served a request; the message names the component, the log says why."""


class EngineError(LLMFWError):
    """The engine failed while it worked on an accepted request."""


class CrashingRequestError(EngineError):
    """The engine process ended each time it ran this request. llmfw does not try the request again."""


class EngineDeadError(EngineError):
    """The engine process has ended. Unanswered requests are lost, unless a new engine process runs them again."""


class EngineRestartingError(EngineDeadError):
    """The engine process has ended, and a new one is not ready yet. The same request may succeed soon."""

    retry_after_s = 5.0


class EngineLostError(EngineDeadError):
    """The engine process has ended too often. The server ends, so that its own supervisor sees it."""

    exit_code = 70  # EX_SOFTWARE of sysexits.h
