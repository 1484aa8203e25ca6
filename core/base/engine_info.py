"""Description, figures and failure of an engine. Plain data that msgspec can encode."""

from __future__ import annotations

import msgspec

from .control import Answer
from .request import EventBatch


class ComponentUse(msgspec.Struct, array_like=True, frozen=True):
    """Totals of the calls of one component of a plugin, in one process, since it started.

    Attributes:
        kind, name, plugin: kind and name of the component, and its plugin.
        seconds: total time of its calls.
        calls: number of calls.
        failures: number of calls that raised an unexpected exception.
    """

    kind: str
    name: str
    plugin: str
    seconds: float
    calls: int
    failures: int


class EngineStats(msgspec.Struct, tag="stats", kw_only=True):
    """The engine at one moment. Token counts are of KV storage.

    Attributes:
        num_running, num_waiting: number of requests that run, and that wait to run.
        num_deferrable_running, num_deferrable_waiting: number of these that are deferrable; some that run may be paused.
        num_drafted_tokens, num_accepted_tokens: tokens that a drafter guessed, and the correct ones among them.
        component_uses: uses of the components that the engine calls.
    """

    num_running: int
    num_waiting: int
    num_used_tokens: int
    num_cached_tokens: int
    num_total_tokens: int
    num_retractions: int = 0
    num_generated_tokens: int = 0
    num_deferrable_running: int = 0
    num_deferrable_waiting: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    component_uses: list[ComponentUse] = []


class EngineInfo(msgspec.Struct, tag="ready", kw_only=True):
    """Description of the engine, sent once when it is ready to serve.

    Attributes:
        task: "generate": it takes `Request`s; "embed": it takes `EmbedRequest`s.
        embedding_size: size of the vectors, if it embeds.
        module_passes: names of the module passes that changed the model, in their order.
        quantization: scheme of the weights, if they were quantised when they were loaded.
        kv_cache_dtype: dtype of stored keys and values; "" if none are stored.
    """

    model: str
    architecture: str
    dtype: str
    device: str
    vocab_size: int
    max_model_len: int
    max_total_tokens: int
    max_running_requests: int
    attention: str
    policy: str
    weight_version: str = ""
    task: str = "generate"
    embedding_size: int = 0
    module_passes: tuple[str, ...] = ()
    quantization: str | None = None
    kv_cache_dtype: str = ""


class EngineFailed(msgspec.Struct, tag="failed"):
    """An exception as plain data: why the engine could not start, why it stopped, or why a command failed.

    Attributes:
        kind: name of the exception's class.
        message: message for the user.
        param, code: parameter and code of a RequestError.
    """

    kind: str
    message: str
    param: str | None = None
    code: str | None = None


class ControlAnswer(msgspec.Struct, tag="answer"):
    """Answer to a `Control`, or the reason why there is none."""

    number: int
    answer: Answer | None = None
    failure: EngineFailed | None = None


FromEngine = EventBatch | EngineStats | EngineInfo | EngineFailed | ControlAnswer
