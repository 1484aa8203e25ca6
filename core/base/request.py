"""What crosses the wire between the API and the engine, and nothing else.

`Request` goes one way, `EventBatch` (all `TokenEvent`s of one step) the other. Everything here is plain data
that msgspec can encode; new fields get defaults and go last, so that an older process understands a newer one.
This module knows nothing of text: prompts and outputs are token ids. Stop *strings* travel in `SamplingParams`
for the benefit of whoever turns tokens into text; the engine does not look at them.
"""

from __future__ import annotations

import enum
import math

import msgspec

from .control import Answer, Command
from .errors import OverloadedError, RequestError


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # an end-of-sequence or stop token, or (decided by the API) a stop string
    LENGTH = "length"  # max_tokens, or the context is full
    ABORT = "abort"  # the client went away, or asked for it
    ERROR = "error"  # the engine could not go on; `TokenEvent.error` says why


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen. Names and meanings as in the OpenAI API and its common extensions.

    Attributes:
        max_tokens: at most so many new tokens; None: until the context is full.
        min_tokens: end-of-sequence and stop tokens cannot be sampled before so many new tokens.
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: sample among the k most likely tokens; 0 or -1: among all.
        top_p: sample among the most likely tokens whose probabilities add up to p (after top_k).
        min_p: drop tokens less likely than min_p times the most likely one (after top_p).
        presence_penalty: subtracted once from the logit of each token that was already generated.
        frequency_penalty: subtracted from a token's logit once for each time it was generated.
        repetition_penalty: positive logits of tokens seen in prompt or output are divided by it, negative ones
            multiplied (Keskar et al., 2019, as in transformers).
        logit_bias: added to the logits of these token ids.
        stop: text ends before the first of these strings.
        stop_token_ids: generation ends after one of these tokens.
        ignore_eos: the model's own end-of-sequence tokens do not end generation.
        seed: with the same seed, model and prompt the text is the same, whatever else runs; None: drawn.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raise RequestError, naming the parameter, for a value out of range."""
        if self.max_tokens is not None:
            _check("max_tokens", self.max_tokens, self.max_tokens >= 1, "at least 1")
        _check("min_tokens", self.min_tokens, self.min_tokens >= 0, "0 or more")
        if self.max_tokens is not None:
            _check(
                "min_tokens",
                self.min_tokens,
                self.min_tokens <= self.max_tokens,
                f"at most max_tokens ({self.max_tokens})",
            )
        _check("temperature", self.temperature, _within(self.temperature, 0, 100), "between 0 and 100")
        _check("top_k", self.top_k, self.top_k >= -1, "-1, 0 (both: off) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, _within(self.min_p, 0, 1), "between 0 and 1")
        for name in ("presence_penalty", "frequency_penalty"):
            _check(name, getattr(self, name), _within(getattr(self, name), -2, 2), "between -2 and 2")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty <= 100, "above 0 and at most 100")
        for token, bias in self.logit_bias.items():
            _check(
                f"logit_bias.{token}", bias, token >= 0 and _within(bias, -100, 100), "between -100 and 100"
            )
        for i, text in enumerate(self.stop):
            _check(f"stop[{i}]", text, bool(text), "a string that is not empty")
        if self.seed is not None:
            _check("seed", self.seed, -(2**63) <= self.seed < 2**63, "a 64-bit integer")

    @property
    def has_penalties(self) -> bool:
        """Whether tokens are penalised by how often they were generated, or were in the prompt."""
        penalties = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(penalties)


def _within(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low <= value <= high


def _check(param: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise RequestError(f"{param} is {value!r}; it must be {expected}", param=param)


class GrammarSpec(msgspec.Struct, frozen=True):
    """What an output has to be, as text for a grammar backend.

    Attributes:
        kind: "json_schema", "regex", "ebnf" or "structural_tag" (see `core.grammar`); a grammar backend may have kinds
            of its own for what `GrammarBackend.prepare` returns.
        source: the schema or tag as JSON text, the regular expression, or the grammar.
        num_bytes: memory that the compiled grammar took when it was tried; 0: not measured.
    """

    kind: str
    source: str
    num_bytes: int = 0


class Thinking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model's thinking is marked in its output. A grammar holds for what comes after it.

    Attributes:
        begin: tokens that open the thinking, where they are the output's first ones.
        end: tokens that close it, in this order and side by side.
        is_open: the prompt has opened it already.
        budget: after so many tokens of thinking the engine closes it; None: never.
        space: one of these tokens may stand between the end and what the grammar holds for.
    """

    begin: tuple[int, ...] = ()
    end: tuple[int, ...]
    is_open: bool = False
    budget: int | None = None
    space: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="add", omit_defaults=True):
    """One prompt to be continued, as the engine sees it.

    Attributes:
        id: unique among the requests in the engine.
        prompt: token ids, at least one.
        sampling: where `max_tokens` or `seed` is None, the engine decides.
        eos_token_ids: the model's end-of-sequence tokens, empty with `ignore_eos` (but not with a grammar, which
            says itself when the text may end).
        priority: larger runs earlier, for policies that look at it.
        logprobs: report the log probability of each new token, and of so many of the most likely ones; None: none.
        prompt_logprobs: the same for the prompt's tokens, on the first event. Such a prompt is computed whole: it
            takes nothing from the prefix cache.
        grammar: what the output has to be; None: anything.
        thinking: how thinking is marked, where a grammar has to wait for its end or it has a budget.
        deferrable: it runs in what requests that are not leave, and gives its place to them at any time.
        stream_interval: tokens in one event, but for its first and its last; None: the engine's own.
        tenant: the API key or user that it belongs to, for policies and limits that count by it.
        tenant_is_key: the tenant is an API key, not what the client says of its user. Keys share the engine evenly.
        cache_salt: it shares cached prefixes with requests of the same salt only.
        timeout_s: seconds after which it ends, wherever it is, by a DeadlineError; None: never.
        tell_wait: events tell while it waits how many are before it.
        may_restart: its reader accepts that the output starts anew (`TokenEvent.restarted`). The engine ignores it.
    """

    id: str
    prompt: list[int]
    sampling: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: GrammarSpec | None = None
    thinking: Thinking | None = None
    deferrable: bool = False
    stream_interval: int | None = None
    tenant: str = ""
    tenant_is_key: bool = False
    cache_salt: str = ""
    timeout_s: float | None = None
    tell_wait: bool = False
    may_restart: bool = False


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="embed", omit_defaults=True):
    """Prompts of which an encoder is to make one vector each. Answered with one event, once all are made.

    Attributes:
        id: unique among the requests in the engine.
        prompts: token ids of each, at least one.
        dimensions: of the vectors, cut to so many; None: all.
        deferrable: it runs in what requests that are not leave.
        tenant, tenant_is_key, timeout_s: as of `Request`.
    """

    id: str
    prompts: list[list[int]]
    dimensions: int | None = None
    deferrable: bool = False
    tenant: str = ""
    tenant_is_key: bool = False
    timeout_s: float | None = None


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """The requests of these ids are to end now; their pages are free after the step in flight."""

    ids: list[str]


class StatsQuery(msgspec.Struct, frozen=True, tag="stats"):
    """Asks for one `EngineStats`."""


class Control(msgspec.Struct, frozen=True, tag="control"):
    """Asks for what an administrator may ask for.

    Attributes:
        number: chosen by the client; its answer carries the same one.
    """

    number: int
    command: Command


ToEngine = Request | EmbedRequest | Abort | StatsQuery | Control


class TokenLogprob(msgspec.Struct, array_like=True):
    """How likely a token was among all of the vocabulary, by the model's own logits: the natural logarithm of their
    softmax, before temperature, penalties, bias and grammar.

    Attributes:
        logprob: of the token.
        top_ids: the most likely tokens at its place, the most likely first.
        top_logprobs: theirs.
    """

    logprob: float
    top_ids: list[int] = []
    top_logprobs: list[float] = []


class Wait(msgspec.Struct, array_like=True):
    """How long a request may have to wait.

    Attributes:
        num_ahead: requests that are to be admitted before it.
        seconds: until it is admitted, as far as can be told; None: it cannot. With 0 and 0.0 it is admitted, and its
            prompt is being computed.
    """

    num_ahead: int
    seconds: float | None = None


class TokenEvent(msgspec.Struct, array_like=True):
    """New tokens of one request, and how it ended if it did.

    Attributes:
        id: of the request.
        token_ids: new tokens, in order; the end-of-sequence or stop token is among them.
        finish_reason: None while the request runs.
        cached_tokens: how many prompt tokens came from the prefix cache (on a request's first event, else 0).
        error: the reason, with finish_reason "error".
        error_kind: the name of the exception's class, with finish_reason "error": one of `llmfw.core`, if it is
            the client's mistake.
        logprobs: one for each of `token_ids`, if the request asks for them.
        prompt_logprobs: one for each prompt token but the first, on the first event, if the request asks for them.
        error_param: the parameter at fault, if the exception is a RequestError that names one.
        vectors: of an `EmbedRequest`, [number of prompts, dimensions] in float32, little-endian.
        wait: the request waits; such an event has no tokens and ends nothing.
        retry_after_s: with an error that passes: after so many seconds the same request may succeed.
        restarted: the request runs again from its start, as the engine died: all events before this one are void.
            Sent by the client, to requests with `may_restart`.
    """

    id: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    error: str | None = None
    error_kind: str = ""
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None
    error_param: str | None = None
    vectors: bytes = b""
    wait: Wait | None = None
    retry_after_s: float = 0.0
    restarted: bool = False

    @classmethod
    def failed(cls, id: str, error: Exception) -> TokenEvent:
        """Return the event that ends a request by an exception."""
        event = cls(id, [], FinishReason.ERROR, error=str(error), error_kind=type(error).__name__)
        if isinstance(error, RequestError):
            event.error_param = error.param
        if isinstance(error, OverloadedError):
            event.retry_after_s = error.retry_after_s
        return event


class EventBatch(msgspec.Struct, tag="step"):
    """All events of one engine step for one client."""

    events: list[TokenEvent]


class PartUse(msgspec.Struct, array_like=True, frozen=True):
    """What the calls of one part of a plugin came to, in one process, since it started.

    Attributes:
        kind, name, plugin: of the part.
        seconds: that its calls took.
        calls: how many there were.
        failures: how many of them raised what they should not.
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
        num_running, num_waiting: requests of which the engine computes tokens, or is going to.
        num_deferrable_running, num_deferrable_waiting: how many of these are deferrable; some that run may be paused.
        num_drafted_tokens, num_accepted_tokens: guessed by a drafter, and how many of these were right.
        part_uses: of the parts that the engine calls.
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
    part_uses: list[PartUse] = []


class EngineInfo(msgspec.Struct, tag="ready", kw_only=True):
    """What the engine is, told once when it is ready to serve.

    Attributes:
        task: "generate": it takes `Request`s; "embed": it takes `EmbedRequest`s.
        embedding_size: of the vectors, where it embeds.
        module_passes: names of the module passes that changed the model, in their order.
        quantization: scheme of the weights, if they were quantised when they were loaded.
        kv_cache_dtype: of stored keys and values; "": where none are stored.
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
    """An exception: why the engine could not start, why it stopped, or why a command has no answer.

    Attributes:
        kind: the name of its class.
        message: for the user.
        param, code: of a RequestError.
    """

    kind: str
    message: str
    param: str | None = None
    code: str | None = None


class ControlAnswer(msgspec.Struct, tag="answer"):
    """What a `Control` gave: an answer, or why there is none."""

    number: int
    answer: Answer | None = None
    failure: EngineFailed | None = None


FromEngine = EventBatch | EngineStats | EngineInfo | EngineFailed | ControlAnswer
