"""Description, statistics and failure of an engine. Plain data that msgspec can encode."""

from __future__ import annotations

import msgspec

from .control import AdapterInfo, Answer
from .histogram import Histogram
from .request import EventBatch


class ComponentUse(msgspec.Struct, array_like=True, frozen=True):
    """Totals of the calls of one component of a plugin in one process, since the process started.

    Attributes:
        kind, name, plugin: kind and name of the component, and its plugin.
        seconds: total time of its calls.
        calls: number of calls.
        failures: number of calls that raised an unexpected exception.
        dropped: number of events that an observer did not get.
        latency: durations of the calls of a store; None for other components.
        refused: number of calls that a store ended with a `StorageError`, for example because its disk is full.
    """

    kind: str
    name: str
    plugin: str
    seconds: float
    calls: int
    failures: int
    dropped: int = 0
    latency: Histogram | None = None
    refused: int = 0


class StepSeconds(msgspec.Struct, array_like=True):
    """Seconds of each phase of the engine's steps, since start.

    Attributes:
        plan: planning by the scheduler.
        forward: forward passes, or their launch on a device that computes them later.
        sample: masks of grammars, adjustment of logits and sampling, or the launch of these.
        wait: waits for a device.
        commit: appending tokens, ending sequences, creating events.
    """

    plan: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    wait: float = 0.0
    commit: float = 0.0


class EngineStats(msgspec.Struct, tag="stats", kw_only=True):
    """Statistics of the engine at one moment.

    Attributes:
        num_running, num_waiting: number of running requests, and of waiting ones.
        num_used_tokens, num_cached_tokens, num_total_tokens: number of KV cache slots used by running
            requests, occupied by the prefix cache, and in total.
        num_deferrable_running, num_deferrable_waiting: number of deferrable requests among the running and
            the waiting ones. Running deferrable requests may be paused.
        num_drafted_tokens, num_accepted_tokens: number of drafted tokens, and number of accepted ones.
        component_uses: call statistics of the components that the engine calls.
        num_prompt_tokens, num_prompt_cached: number of tokens of all started prompts, and number of these
            tokens that came from the prefix cache.
        num_drafted_output: number of generated tokens that were drafted.
        num_evicted_tokens: number of tokens that the prefix cache has evicted.
        num_images_encoded, num_images_found: number of images in prompts that were encoded, and number of
            images whose encoding was still kept. Neither number includes images in cached prefixes.
        image_seconds: seconds that the device took to encode each of these images; None if the engine reads
            no images.
        num_steps: number of steps.
        step_seconds: seconds of each phase of the steps.
        idle_seconds: seconds in which the engine process had nothing to do; 0 for an engine in the process of
            its client.
        live_gaps, deferrable_gaps: seconds between two tokens of a request, by class of the request; None if
            the engine generates nothing.
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
    num_prompt_tokens: int = 0
    num_prompt_cached: int = 0
    num_drafted_output: int = 0
    num_evicted_tokens: int = 0
    num_images_encoded: int = 0
    num_images_found: int = 0
    image_seconds: Histogram | None = None
    num_steps: int = 0
    step_seconds: StepSeconds = msgspec.field(default_factory=StepSeconds)
    idle_seconds: float = 0.0
    live_gaps: Histogram | None = None
    deferrable_gaps: Histogram | None = None
    component_uses: list[ComponentUse] = []


class EngineInfo(msgspec.Struct, tag="ready", kw_only=True):
    """Description of the engine, sent once when it is ready to serve.

    Attributes:
        task: "generate" if the engine takes `Request`s, or "embed" or "classify" if the engine takes
            `EmbedRequest`s.
        embedding_size: number of dimensions of the vectors, if the task is "embed"; else 0.
        is_matryoshka: whether the model's config.json says that its vectors may be cut.
        matryoshka_dimensions: the only numbers of dimensions to cut to; empty: any.
        prompt_names: names of the prompts in the model's files, which are not added to inputs.
        module_passes: names of the module passes that changed the model, in the order of their application.
        quantization: scheme by which the weights were quantized at loading; None: not quantized.
        kv_cache_dtype: dtype of the KV cache; "" if the engine has none.
        labels: names of the logits, in order, if the task is "classify".
        logits_processors: names of the logits processors for which requests can ask, in the order in which
            they run.
        activation: "sigmoid", "softmax" or "identity", which turns the logits into scores, if the task is
            "classify"; else "".
        adapters: adapters that were loaded at the start.
        max_adapters: number of adapters that fit into memory at once.
        reads_images: whether requests may have images.
        uncounted_token: id of a token that takes no position in the model, such as RoBERTa's padding token. Prompts may not
            have it, and it ends an output. None: there is none.
        media_processor: full name, "plugin/name", of the media processor that prepares the images; "" if the engine
            reads no images.
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
    is_matryoshka: bool = False
    matryoshka_dimensions: tuple[int, ...] = ()
    prompt_names: tuple[str, ...] = ()
    module_passes: tuple[str, ...] = ()
    quantization: str | None = None
    kv_cache_dtype: str = ""
    labels: tuple[str, ...] = ()
    activation: str = ""
    logits_processors: tuple[str, ...] = ()
    adapters: tuple[AdapterInfo, ...] = ()
    max_adapters: int = 0
    reads_images: bool = False
    uncounted_token: int | None = None
    media_processor: str = ""


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


class EngineReport(msgspec.Struct, tag="report"):
    """Report of an engine for a router: changes in the prefix cache, and the engine's speed.

    Attributes:
        number: number of the report, from 1.
        is_whole: whether `added` has all cached prefixes. If False, it has the prefixes added since the
            previous report.
        block: number of tokens of a block; 0 if the engine caches no prefixes.
        added, removed: hashes of prefixes of whole blocks (see `core.schedule.cache.prefix_hash`), 8 bytes
            each, in the machine's byte order.
        tokens_per_s: recent number of prompt tokens computed per second; 0.0: not measured yet.
    """

    number: int
    is_whole: bool = False
    block: int = 0
    added: bytes = b""
    removed: bytes = b""
    tokens_per_s: float = 0.0


class ControlAnswer(msgspec.Struct, tag="answer"):
    """Answer to a `Control`. If the command failed, `failure` is set instead of `answer`."""

    number: int
    answer: Answer | None = None
    failure: EngineFailed | None = None


FromEngine = EventBatch | EngineStats | EngineInfo | EngineFailed | ControlAnswer | EngineReport
