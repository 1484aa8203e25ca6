"""Exceptions that llmfw raises for a reason a user can act on.

    LLMFWError
    ├── ConfigError            a flag, a file or a combination of them that cannot work
    │   ├── UnknownComponentError   a component was asked for by a name that no plugin registers
    │   │   └── LostComponentError  probably registered by a plugin that did not load
    │   ├── ModelError         a model that cannot be found, read or served
    │   └── ComponentError          a component that is registered but cannot be imported, built or used here
    ├── PluginError            a plugin package that is broken (raised only in strict mode)
    ├── RequestError           an invalid request: names the parameter, its value and what is allowed
    │   ├── ContextLengthError more tokens than the model or the pool can hold
    │   ├── ModelNotFoundError a model name that this server does not serve
    │   ├── NotFoundError      an id that is not, or no longer, stored here
    │   ├── GrammarCostError   a grammar that takes too much time or memory, or is nested too deeply
    │   ├── TooLargeError      more bytes than the limit
    │   └── ConflictError      the request conflicts with an operation in progress
    ├── StorageError           a store cannot do this now; a retry may succeed
    │   ├── StorageFullError   a store has no space left
    │   ├── StorageDamagedError  a store's own files are damaged
    │   └── ContentLostError   the content of a stored file is gone or damaged
    ├── OverloadedError        the server cannot take the request now; a retry may succeed
    │   ├── TenantLimitError   one key or user has reached its limit of requests
    │   │   └── RateLimitError  one tenant has reached its limit of requests or tokens per minute
    │   └── NotReadyError      an operator has made the server take no requests
    ├── DeadlineError          a request's own timeout has passed
    ├── ComponentFailedError        a component raised an unexpected exception while it served a request
    └── EngineError            the engine failed on a request that it had accepted
        ├── RankError          a process that computes a part of the model has ended or failed
        ├── CrashingRequestError  a request that repeatedly crashed the engine
        ├── UnreadableRequestError  a request whose fields have wrong types
        └── EngineDeadError    the engine process has ended
            ├── EngineRestartingError  the engine is being restarted
            └── EngineLostError  the engine is not restarted: the server ends

The API maps these errors to HTTP status codes in one table (`api/http/errors.py`).
"""

from __future__ import annotations


class LLMFWError(Exception):
    """Base of all errors that carry a message meant for the user."""


class ConfigError(LLMFWError):
    """The server or engine cannot start with these settings."""


class UnknownComponentError(ConfigError):
    """No plugin registers the component that was asked for."""


class LostComponentError(UnknownComponentError):
    """No plugin registers the component that was asked for, probably because its plugin did not load."""


class ModelError(ConfigError):
    """The model cannot be found, read, or served correctly."""


class ComponentError(ConfigError):
    """A registered component cannot be imported or built, or cannot serve this model on this device."""


class PluginError(LLMFWError):
    """A plugin package is broken. Raised only in strict mode, and if a plugin ends the server."""


class RequestError(LLMFWError):
    """A request is wrong.

    Args:
        message: what is wrong, with the value, and what is allowed.
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
    """A grammar, schema or regular expression costs too much.

    It takes too much time or memory to compile, it is nested too deeply, or its steps take too much CPU time.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "grammar_too_complex") -> None:
        super().__init__(message, param=param, code=code)


class MissingScopeError(RequestError):
    """The caller lacks the scope that a route needs.

    Args:
        scope: name of the scope.
        what: the route or feature that needs the scope, such as "GET /v1/files".
    """

    def __init__(self, scope: str, what: str) -> None:
        message = (
            f"{what} needs the scope {scope!r}, which these credentials do not have; ask the operator for "
            "credentials that do"
        )
        super().__init__(message, code="missing_scope")


class ModelNotFoundError(RequestError):
    """The request names a model that this server does not serve."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model", code="model_not_found")


class NotFoundError(RequestError):
    """The request names an object, such as a file or a batch, that does not exist or no longer exists."""


class TooLargeError(RequestError):
    """The request has more bytes than the limit; the message states the limit."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="request_too_large")


class ConflictError(RequestError):
    """The request conflicts with an operation in progress; the message names the operation.

    Args:
        passing: whether the operation ends soon, so that a retry may succeed.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, passing: bool = False
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.passing = passing


class StorageError(LLMFWError):
    """An operation of a store failed and changed nothing. The message gives the reason."""


class StorageFullError(StorageError):
    """A store has no space for the data."""


class StorageDamagedError(StorageError):
    """A store's own files, such as a database, are damaged. Retries fail until the operator restores them."""


class ContentLostError(StorageError):
    """The content of a stored file is gone or damaged. A retry does not help."""


class OverloadedError(LLMFWError):
    """The server cannot take the request now, usually because a queue is full. The engine has not started it.

    Args:
        retry_after_s: estimated seconds until a retry may succeed.
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TenantLimitError(OverloadedError):
    """A tenant has reached its limit of requests."""


class RateLimitError(TenantLimitError):
    """A tenant has reached its limit of requests per minute, or of tokens per minute."""


class NotReadyError(OverloadedError):
    """An operator has stopped the server from taking requests for now.

    Args:
        code: a short machine-readable reason.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.code = code


class DeadlineError(LLMFWError):
    """The request's own timeout has passed; the message states the progress of the request."""


class ComponentFailedError(LLMFWError):
    """A plugin's component raised an unexpected exception while it served a request.

    The message names the component; the log has the traceback.
    """


class UndeclaredFieldError(LLMFWError):
    """A component asks for a request field that no plugin registers, probably a misspelt one."""


class EngineError(LLMFWError):
    """The engine failed while it worked on an accepted request."""


class RankError(EngineError):
    """A process that computes a part of the model (`--tp`) has ended or failed, so the engine cannot continue."""


class CrashingRequestError(EngineError):
    """The engine process ended each time it ran this request. llmfw does not run the request again."""


class UnreadableRequestError(EngineError):
    """The engine cannot read a request, because a plugin built it with fields of wrong types."""


class EngineDeadError(EngineError):
    """The engine process has ended.

    Unanswered requests are lost, unless a new engine process runs them again.
    """


class EngineRestartingError(EngineDeadError):
    """The engine process has ended, and a new one is not ready yet. The same request may succeed soon."""

    retry_after_s = 5.0


class EngineLostError(EngineDeadError):
    """The engine has ended and is not restarted.

    The server exits, so that its service manager can react.
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h
