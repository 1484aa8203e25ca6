"""Messages between the API and the engine.

The API sends `Request`s; the engine sends `EventBatch`es, which hold all `TokenEvent`s of one step. Messages
are plain data that msgspec can encode. New fields get defaults and go last, so that older processes
understand newer messages. Prompts and outputs are token ids. The engine ignores stop *strings*: the code that
turns tokens into text finds them.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import msgspec

from .control import Command
from .described import message_of
from .errors import OverloadedError, RequestError
from .media import MediaSpan

MAX_LOGPROB_TOKEN_IDS = 128
"""Maximum number of tokens that a request names for their log probabilities, as in vLLM."""


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # an end-of-sequence or stop token, or (decided by the API) a stop string
    LENGTH = "length"  # max_tokens, or the context is full
    ABORT = "abort"  # the client disconnected, or aborted the request
    ERROR = "error"  # the engine could not continue; `TokenEvent.error` is the reason


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters, named and defined as in the OpenAI API and its common extensions.

    Attributes:
        max_tokens: maximum number of new tokens; None: the rest of the context window.
        min_tokens: minimum number of new tokens; before that, end-of-sequence and stop tokens cannot be
            sampled.
        temperature: divisor of the logits; 0: always take the most likely token.
        top_k: number of most likely tokens to sample from; 0 or -1: all.
        top_p: total probability of the most likely tokens to sample from (applied after top_k).
        min_p: least probability of a token, as a fraction of the most likely token's (applied after top_p).
        presence_penalty: amount subtracted once from the logit of each token that was already generated.
        frequency_penalty: amount subtracted from a token's logit for each time it was generated.
        repetition_penalty: divisor of positive logits, and factor of negative ones, of tokens seen in prompt
            or output (Keskar et al., 2019, as in transformers).
        logit_bias: amounts added to the logits of these token ids.
        stop: strings before which the text ends.
        stop_token_ids: tokens after which generation ends.
        ignore_eos: whether to continue past the model's own end-of-sequence tokens.
        allowed_token_ids: the only tokens that can be sampled; end-of-sequence tokens that are not listed
            cannot be sampled, either. Empty: all tokens.
        bad_words: sequences of tokens that the output never has.
        seed: seed of random sampling; the same seed, model and prompt give the same text, whatever other
            requests run; None: a random seed.
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
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Raise RequestError, naming the parameter, for a value out of range."""
        # No calls for values that are right: each request is checked several times. NaN is in no range.
        if self.max_tokens is not None and self.max_tokens < 1:
            raise _wrong("max_tokens", self.max_tokens, "at least 1")
        if self.min_tokens < 0:
            raise _wrong("min_tokens", self.min_tokens, "0 or more")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _wrong("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        if not 0 <= self.temperature <= 100:
            raise _wrong("temperature", self.temperature, "between 0 and 100")
        if self.top_k < -1:
            raise _wrong("top_k", self.top_k, "-1, 0 (both: off) or more")
        if not 0 < self.top_p <= 1:
            raise _wrong("top_p", self.top_p, "above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise _wrong("min_p", self.min_p, "between 0 and 1")
        if not -2 <= self.presence_penalty <= 2:
            raise _wrong("presence_penalty", self.presence_penalty, "between -2 and 2")
        if not -2 <= self.frequency_penalty <= 2:
            raise _wrong("frequency_penalty", self.frequency_penalty, "between -2 and 2")
        if not 0.01 <= self.repetition_penalty <= 100:
            raise _wrong("repetition_penalty", self.repetition_penalty, "between 0.01 and 100")
        if self.logit_bias:
            _check_biases(self.logit_bias)
        if "" in self.stop:
            raise _wrong(f"stop[{self.stop.index('')}]", "", "a string that is not empty")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise _wrong("seed", self.seed, "a 64-bit integer")

    @property
    def banned_token_ids(self) -> tuple[int, ...]:
        """Tokens of the bad words that consist of a single token."""
        return tuple({word[0] for word in self.bad_words if len(word) == 1}) if self.bad_words else ()

    @property
    def has_penalties(self) -> bool:
        """Whether a presence, frequency or repetition penalty is set."""
        penalties = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(penalties)


def _check_biases(biases: dict[int, float]) -> None:
    values = biases.values()
    # Takes a hundredth of the time of a loop. NaN is not a minimum or maximum, but makes the sum NaN.
    if min(biases) >= 0 and min(values) >= -100 and max(values) <= 100 and not math.isnan(sum(values)):
        return
    for token, bias in biases.items():
        if not (token >= 0 and -100 <= bias <= 100):
            raise _wrong(f"logit_bias.{token}", bias, "between -100 and 100")


def _wrong(param: str, value: object, expected: str) -> RequestError:
    return RequestError(f"{param} is {value!r}; it must be {expected}", param=param)


class GrammarSpec(msgspec.Struct, frozen=True):
    """A grammar that an output must match, as text for a grammar backend.

    Attributes:
        kind: "json_schema", "regex", "ebnf" or "structural_tag" (see `core.interfaces.grammar`).
            `GrammarBackend.prepare` may return specs of other kinds, which only the same backend can read.
        source: the schema or tag as JSON text, the regular expression, or the grammar.
        num_bytes: memory that the compiled grammar took in a trial compilation, in bytes; 0: not measured.
    """

    kind: str
    source: str
    num_bytes: int = 0


class Thinking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Markers of a model's thinking in its output. A grammar applies to the text after the thinking.

    Attributes:
        begin: token sequence that opens the thinking if the output starts with it.
        end: token sequence that closes the thinking.
        is_open: whether the prompt has already opened the thinking.
        budget: number of thinking tokens after which the engine closes the thinking; None: no limit.
        space: whitespace tokens; one of them may come between the end of the thinking and the constrained
            text.
    """

    begin: tuple[int, ...] = ()
    end: tuple[int, ...]
    is_open: bool = False
    budget: int | None = None
    space: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="add", omit_defaults=True):
    """One prompt to be continued, as the engine sees it.

    Attributes:
        id: id, unique among the requests in the engine.
        prompt: token ids, at least one.
        sampling: sampling parameters; the engine sets `max_tokens` and `seed` if they are None.
        eos_token_ids: the model's end-of-sequence tokens. With `ignore_eos`, empty unless a grammar decides
            when the output ends.
        priority: priority, for policies that use it; a request with a larger value runs earlier.
        logprobs: number of most likely tokens to report with the log probability of each new token; None:
            report none.
        prompt_logprobs: as `logprobs`, but for the tokens of the prompt, reported on the first event. The
            engine then computes the prompt from the token before `prompt_logprobs_start` on, even if more of
            it is cached.
        prompt_logprobs_start: index of the first prompt token whose log probability is reported, from 1 to
            the prompt's last one. The first token of a prompt has none.
        grammar: grammar that the output must match; None: no constraint.
        thinking: markers of the model's thinking; set if a grammar applies only after the thinking, or if the
            thinking has a budget.
        deferrable: whether the request runs only in the capacity that other requests leave, and yields to
            them at any time.
        stream_interval: tokens per event, except for the first and the last event; None: the engine's
            default.
        tenant: API key or user that the request belongs to, for policies and limits that count by tenant.
        tenant_is_key: whether the tenant is an API key. If False, it is a user that the client names. API
            keys get equal shares of the engine.
        cache_salt: only requests with the same salt share cached prefixes.
        timeout_s: seconds after which the request ends with a DeadlineError, whatever its state; None: never.
        tell_wait: whether the client gets events with a `Wait` until the first token.
        logprob_token_ids: tokens whose log probabilities to report, too, for the position of each new token;
            at most MAX_LOGPROB_TOKEN_IDS. Needs `logprobs`.
        prompt_logprob_token_ids: as `logprob_token_ids`, but for the positions of the prompt's tokens. Needs
            `prompt_logprobs`.
        constrained_logprobs: whether `logprobs` are computed after grammar, penalties, bias, allowed tokens,
            bad words, `min_tokens` and logits processors, but before temperature. If False, they are the
            model's own.
        may_restart: whether the reader of the events accepts that the output starts over
            (`TokenEvent.restarted`). The engine ignores this field.
        fields: values of request fields of plugins (see `core.interfaces.request_field`), by name: plain
            data. A field that the client left out, and that has no default, is not in it.
        tenant_max_requests: maximum number of the tenant's requests that wait or run, of which this would be
            one; None: the engine's `max_tenant_requests`.
        tenant_max_queued: maximum number of the tenant's requests that wait, if the tenant is an API key;
            None: no limit.
        replica: number of the engine that has to run the request, if there are several; None: a router
            chooses. An engine ignores this field.
        adapter: name of the loaded adapter to generate with; empty: the model alone.
        media: images in the prompt, in order.
        output: tokens that another engine has already generated for the request. The engine continues after
            them as if it had generated them: they count for `max_tokens`, penalties, grammar and the rest,
            and are in no event. Cannot be combined with `prompt_logprobs`.
    """

    id: str
    prompt: list[int]
    sampling: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int = 1
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
    constrained_logprobs: bool = False
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprob_token_ids: tuple[int, ...] = ()
    fields: dict[str, Any] = {}
    tenant_max_requests: int | None = None
    tenant_max_queued: int | None = None
    replica: int | None = None
    adapter: str = ""
    media: tuple[MediaSpan, ...] = ()
    output: list[int] = []


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="embed", omit_defaults=True):
    """Prompts to be embedded as one vector each. A single event returns all vectors, once they are computed.

    If the model classifies, the vectors are the logits of its labels.

    Attributes:
        id: id, unique among the requests in the engine.
        prompts: token ids of each prompt, at least one per prompt.
        dimensions: number of dimensions that the vectors are truncated to; None: not truncated.
        deferrable: whether the request runs only in the capacity that other requests leave.
        tenant, tenant_is_key, timeout_s, tenant_max_requests, tenant_max_queued: as in `Request`.
        type_ids: type of each token of each prompt, for a model that classifies: 0, or 1 in the second text
            of a pair; empty: all 0.
    """

    id: str
    prompts: list[list[int]]
    dimensions: int | None = None
    deferrable: bool = False
    tenant: str = ""
    tenant_is_key: bool = False
    timeout_s: float | None = None
    type_ids: list[list[int]] = []
    tenant_max_requests: int | None = None
    tenant_max_queued: int | None = None


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Ends the requests with these ids without an event, and frees their pages. Ignores unknown ids."""

    ids: list[str]


class StatsQuery(msgspec.Struct, frozen=True, tag="stats"):
    """Asks for one `EngineStats`."""


class ReportQuery(msgspec.Struct, frozen=True, tag="report"):
    """Asks for one `EngineReport` of all that is cached."""


class Control(msgspec.Struct, frozen=True, tag="control"):
    """Carries an administrator's command.

    Attributes:
        number: number that the client chooses. The answer has the same number.
    """

    number: int
    command: Command


ToEngine = Request | EmbedRequest | Abort | StatsQuery | ReportQuery | Control


class TokenLogprob(msgspec.Struct, array_like=True):
    """Log probability of a token: the natural logarithm of the softmax of its logit over the vocabulary.

    Uses the model's own logits, before temperature, penalties, bias and grammar, unless the request sets
    `constrained_logprobs`.

    Attributes:
        logprob: log probability of the token.
        top_ids: the most likely tokens at its position, most likely first.
        top_logprobs: log probabilities of `top_ids`.
        rank: number of tokens that are at least as likely, 1 for the most likely one; 0: not known.
        given_ids: the tokens that the request names (`logprob_token_ids` or `prompt_logprob_token_ids`), in
            its order.
        given_logprobs: log probabilities of `given_ids`.
    """

    logprob: float
    top_ids: list[int] = []
    top_logprobs: list[float] = []
    rank: int = 0
    given_ids: list[int] = []
    given_logprobs: list[float] = []


class Wait(msgspec.Struct, array_like=True):
    """Place of a waiting request in the queue, and its estimated wait.

    Attributes:
        num_ahead: number of requests to be admitted before this one.
        seconds: estimated seconds until admission; None: unknown. 0.0 with `num_ahead` 0 means that the
            request is admitted and its prompt is being computed.
    """

    num_ahead: int
    seconds: float | None = None


class TokenEvent(msgspec.Struct, array_like=True):
    """New tokens of one request, and how it ended if it did.

    Attributes:
        id: the request's id.
        token_ids: new tokens, in order, including the end-of-sequence or stop token.
        finish_reason: why the request ended; None while it runs.
        cached_tokens: number of prompt tokens from the prefix cache (on a request's first event, else 0).
        error: message of the exception that ended the request, with finish_reason "error".
        error_kind: name of the exception's class, with finish_reason "error". If the client is at fault, the
            class is one of `llmfw.core.base.errors`.
        logprobs: log probability of each of `token_ids`, if the request asks for them.
        prompt_logprobs: log probability of each prompt token from `Request.prompt_logprobs_start` on, on the
            first event, if the request asks for them.
        error_param: the parameter at fault, if the exception is a RequestError that names one.
        vectors: vectors of an `EmbedRequest`, [number of prompts, dimensions] in float32, little-endian.
        wait: place in the queue, for a request that waits. An event with a `wait` has no tokens and does not
            end the request.
        retry_after_s: with a temporary error, seconds after which the same request may succeed.
        restarted: whether the request starts over because the engine died; all earlier events are then void.
            Set only by an `EngineClient`, and only for requests with `may_restart`.
        queued_us: microseconds from the request's arrival in the engine to its first step (on a request's
            first event with tokens, else 0). An int, as it takes up fewer bytes in each event than a float.
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
    queued_us: int = 0

    @classmethod
    def failed(cls, id: str, error: Exception) -> TokenEvent:
        """Return the event that ends a request with an exception."""
        event = cls(id, [], FinishReason.ERROR, error=message_of(error), error_kind=type(error).__name__)
        if isinstance(error, RequestError):
            event.error_param = error.param
        if isinstance(error, OverloadedError):
            event.retry_after_s = error.retry_after_s
        return event


class EventBatch(msgspec.Struct, tag="step"):
    """All events of one engine step for one client."""

    events: list[TokenEvent]
