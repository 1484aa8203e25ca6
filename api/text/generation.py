"""The one path from a prompt to a stream of text events, for routes and whoever else generates.

`Generator` turns prompts and sampling parameters into engine requests; `Generation` is what runs then: one or more
choices, each with its own request and its own text. Knows nothing of HTTP and of the bodies' form.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from llmfw.core.base.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineError,
    ModelNotFoundError,
    RequestError,
)
from llmfw.core.base.request import (
    EngineInfo,
    FinishReason,
    GrammarSpec,
    Request,
    SamplingParams,
    Thinking,
    TokenEvent,
    Wait,
)
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.tokenizer import Tokenizer

from .choices_in_flight import ChoicesInFlight
from .encoder import PromptEncoder
from .engine_places import EnginePlaces
from .grammar_check import GrammarChecker
from .sampling import MAX_BIASES, to_sampling
from .terms import Terms
from .text_stream import Delta, TextStream
from .threads import TextThreads

MAX_SETTINGS_BYTES = 2**24
"""Of all choices of a request."""

MakeText = Callable[[Sequence[int]], TextStream]
"""Given a prompt's tokens, returns a fresh text for one choice."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an output beside how its tokens are sampled. The fields are those of `Request`."""

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: GrammarSpec | None = None
    thinking: Thinking | None = None


class Choice:
    """One continuation of one prompt.

    Attributes:
        index: among the choices of its generation.
        request: as the engine gets it.
        text: what came of it so far; has a finish reason at the end.
        wait: while nothing came and the engine tells how long it may take.
        has_restarted: the last event made what came before it void.
    """

    __slots__ = ("_make_text", "has_restarted", "index", "request", "text", "wait")

    def __init__(self, index: int, request: Request, make_text: MakeText) -> None:
        self.index = index
        self.request = request
        self.wait: Wait | None = None
        self.has_restarted = False
        self._make_text = make_text
        self.text = make_text(request.prompt)

    def feed(self, event: TokenEvent) -> Sequence[Delta]:
        """Take an event of the engine; return what it adds to the text."""
        if event.finish_reason is FinishReason.ABORT:
            raise EngineError("the request was aborted")
        self.wait, self.has_restarted = event.wait, event.restarted
        if event.restarted:
            self.text = self._make_text(self.request.prompt)
        return () if event.restarted or event.wait is not None else self.text.feed(event)


class Generation:
    """The choices of one client request, while they run.

    Attributes:
        id: with its prefix, as the client sees it.
        created: seconds since the epoch.
    """

    def __init__(
        self, id: str, client: EngineClient, choices: Sequence[Choice], places: EnginePlaces | None = None
    ) -> None:
        self.id = id
        self.created = int(time.time())
        self.choices = choices
        self._client = client
        self._places = places

    def rename(self, id: str) -> None:
        """Give it and its requests another id. Nothing has been sent yet."""
        self.id = id
        for choice in self.choices:
            choice.request = msgspec.structs.replace(choice.request, id=f"{id}-{choice.index}")

    def events(self, *, may_restart: bool = False) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        """Send the requests, and yield what each event adds to its choice, maybe nothing.

        Closing the iterator before its end aborts what still runs. Of choices that are told of their waiting nothing is
        yielded before the engine has accepted all.

        Args:
            may_restart: the reader drops what it has of a choice that `has_restarted`, as its engine was replaced.

        Raises:
            LLMFWError: as `EngineClient.generate`; what runs of the other choices is aborted.
        """
        if may_restart:
            for choice in self.choices:
                choice.request = msgspec.structs.replace(choice.request, may_restart=True)
        return self._one(self.choices[0]) if len(self.choices) == 1 else self._merged()

    async def finish(self) -> dict[int, list[Delta]]:
        """Run to the end; return all deltas by choice index."""
        deltas: dict[int, list[Delta]] = {choice.index: [] for choice in self.choices}
        async with contextlib.aclosing(self.events(may_restart=True)) as events:
            async for choice, new in events:
                if choice.has_restarted:
                    deltas[choice.index].clear()
                deltas[choice.index] += new
        return deltas

    async def _one(self, choice: Choice) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        async with contextlib.aclosing(self._client.generate(choice.request)) as events:
            async for event in events:
                yield choice, choice.feed(event)
                if choice.text.finish_reason is not None:
                    return

    async def _merged(self) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        """Run the choices side by side, and yield their events as they come.

        A choice's text takes an event only when that event's turn comes: the reader looks at both together.
        """
        with self._places.joined() if self._places else contextlib.nullcontext():
            flight = ChoicesInFlight(self._client, self.choices, self._places)
            unheard = {i for i in flight.first if self.choices[i].request.tell_wait}
            held: deque[tuple[Choice, TokenEvent | Exception | None]] = deque()
            try:
                while held or flight.is_open:
                    choice, item = await flight.next() if unheard or not held else held.popleft()
                    if isinstance(item, Exception):
                        raise item
                    if unheard:
                        unheard.discard(choice.index)
                        held.append((choice, item))
                    elif item is not None and choice.text.finish_reason is None:
                        deltas = choice.feed(item)
                        if choice.text.finish_reason is not None:
                            flight.end(choice)
                        yield choice, deltas
            finally:
                await flight.close()


class Generator:
    """Makes generations.

    Args:
        client: started.
        tokenizer: the model's.
        served_name: what clients call the model.
        grammar_checker: None: there is no structured output.
        sampling_defaults: by SamplingParams' names, what clients that do not say get instead of its own defaults.
        places: bounds how many choices of one client request are in the engine at once; None: no bound.
        max_biases: entries of logit_bias.

    Attributes:
        texts: encodes prompts outside the event loop.
        threads: for it, and for templates.
    """

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        served_name: str,
        grammar_checker: GrammarChecker | None = None,
        sampling_defaults: Mapping[str, float] | None = None,
        places: EnginePlaces | None = None,
        max_biases: int = MAX_BIASES,
    ) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self.served_name = served_name
        self.sampling_defaults = dict(sampling_defaults or {})
        self._grammar_checker = grammar_checker
        self._places = places
        self._max_biases = max_biases
        self.threads = TextThreads()
        self.texts = PromptEncoder(tokenizer, lambda: self.info.max_model_len, self.threads)

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        return self.client.info

    def check(self, model: str | None, task: str | None = "generate") -> None:
        """Raise ModelNotFoundError if a request names another model, EngineDeadError if nothing can run.

        And RequestError, if the model is there for another task. None: any will do.
        """
        if model is not None and model != self.served_name:
            raise ModelNotFoundError(f"there is no model {model!r}; this server has {self.served_name!r}")
        if task is not None and task != self.info.task:
            does = {"embed": "embeds", "generate": "generates"}
            raise RequestError(
                f"this server {does[self.info.task]}; model {self.served_name!r} cannot {task}",
                code="unsupported_operation",
            )
        if self.client.failure is not None:
            raise EngineDeadError(self.client.failure)

    def sampling(
        self, body: msgspec.Struct, max_tokens: int | None, renamed: dict[str, str] | None = None
    ) -> SamplingParams:
        """Return a body's sampling parameters (`to_sampling`)."""
        return to_sampling(body, max_tokens, renamed, self.sampling_defaults, self._max_biases)

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return a prompt's tokens. The event loop is not held up by a long one.

        Raises:
            ContextLengthError: the text cannot fit into the context.
        """
        return await self.texts.encode(text, add_special_tokens=add_special_tokens)

    async def check_grammar(self, spec: GrammarSpec, param: str, tenant: str = "") -> GrammarSpec:
        """Return what the engine is to compile for a grammar (`GrammarChecker.check`).

        Raises:
            RequestError: the grammar cannot be held to; names the client's parameter.
        """
        checker = self._grammar_checker or GrammarChecker(None, self.tokenizer, self.info.vocab_size)
        return await checker.check(spec, param, tenant)

    async def close(self) -> None:
        """End the processes that compile grammars, and drop work on texts that has not begun."""
        self.threads.close()
        if self._grammar_checker is not None:
            await self._grammar_checker.close()

    def plain_text(self, sampling: SamplingParams, *, skip_special_tokens: bool, logprobs: bool) -> MakeText:
        """Return what makes texts that go on with their prompts, without thinking and calls."""
        token_bytes = self.tokenizer.token_bytes if logprobs else None

        def make_text(prompt: Sequence[int]) -> TextStream:
            return TextStream(
                self.tokenizer.detokenizer(prompt, skip_special_tokens=skip_special_tokens),
                stop=sampling.stop,
                min_tokens=sampling.min_tokens,
                token_bytes=token_bytes,
            )

        return make_text

    def start(
        self,
        prefix: str,
        prompts: Sequence[list[int]],
        sampling: SamplingParams,
        make_text: MakeText,
        *,
        n: int = 1,
        priority: int = 0,
        terms: Terms | None = None,
        output: Output | None = None,
        max_tokens_param: str = "max_tokens",
    ) -> Generation:
        """Return a generation of n choices for each prompt, prompt-major. Nothing is sent before its events are read.

        Args:
            prefix: of the id.
            terms: how each choice is served beside others.
            output: what else is asked of each choice; the prompt's log probabilities only of a prompt's first one.
            max_tokens_param: how the client calls `max_tokens`.

        Raises:
            RequestError: a prompt is empty, does not fit, or a token id is none of the model's.
        """
        id = f"{prefix}{uuid.uuid4().hex}"
        output, terms = output or Output(), terms or Terms()
        ignore_eos = sampling.ignore_eos and output.grammar is None
        eos = () if ignore_eos else self.tokenizer.eos_token_ids
        self._check_token_ids("stop_token_ids", sampling.stop_token_ids)
        self._check_token_ids("logit_bias", tuple(sampling.logit_bias))
        self._check_together(prompts, n, (sampling, output))
        choices: list[Choice] = []
        for prompt in prompts:
            fitted = self._fit(sampling, prompt, max_tokens_param)
            for i in range(n):
                index = len(choices)
                request = Request(
                    id=f"{id}-{index}",
                    prompt=prompt,
                    sampling=_with_own_seed(fitted, i),
                    eos_token_ids=eos,
                    priority=priority,
                    logprobs=output.logprobs,
                    prompt_logprobs=output.prompt_logprobs if i == 0 else None,
                    grammar=output.grammar,
                    thinking=output.thinking,
                    tenant=terms.tenant,
                    tenant_is_key=terms.tenant_is_key,
                    cache_salt=terms.cache_salt,
                    timeout_s=terms.timeout_s,
                    tell_wait=terms.tell_wait,
                )
                choices.append(Choice(index, request, make_text))
        return Generation(id, self.client, choices, self._places)

    def _check_together(self, prompts: Sequence[list[int]], n: int, settings: object) -> None:
        """Raise RequestError if all choices together are too much to send: each is sent with its prompt and settings."""
        self.texts.check_together(n * sum(map(len, prompts)), "n" if n > 1 else "prompt")
        num_choices = n * len(prompts)
        if num_choices > 1 and num_choices * len(msgspec.msgpack.encode(settings)) > MAX_SETTINGS_BYTES:
            raise RequestError(
                f"the settings of {num_choices} choices (logit_bias, stop, the grammar) are more than "
                f"{MAX_SETTINGS_BYTES} bytes together; send several requests",
                param="n",
            )

    def _fit(self, sampling: SamplingParams, prompt: Sequence[int], max_tokens_param: str) -> SamplingParams:
        """Return the parameters with max_tokens set; raise RequestError if prompt and output do not fit."""
        if not prompt:
            raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
        self._check_token_ids("prompt", prompt)
        limit, used = self.info.max_model_len, len(prompt)
        if used >= limit:
            raise ContextLengthError(
                f"this model's maximum context length is {limit} tokens; the prompt alone has {used}"
            )
        if sampling.max_tokens is None:
            return msgspec.structs.replace(sampling, max_tokens=limit - used)
        if used + sampling.max_tokens > limit:
            raise ContextLengthError(
                f"this model's maximum context length is {limit} tokens; the prompt has {used} and "
                f"{max_tokens_param} is {sampling.max_tokens}: together {used + sampling.max_tokens}",
                param=max_tokens_param,
            )
        return sampling

    def _check_token_ids(self, param: str, token_ids: Sequence[int]) -> None:
        size = self.info.vocab_size
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < size):
            wrong = next(token for token in token_ids if not 0 <= token < size)
            raise RequestError(
                f"{param} has the token id {wrong}; this model's go from 0 to {size - 1}", param=param
            )


def _with_own_seed(sampling: SamplingParams, i: int) -> SamplingParams:
    """Return the parameters for the i-th choice of a prompt: with a seed, each choice has a seed of its own."""
    if i == 0 or sampling.seed is None:
        return sampling
    return msgspec.structs.replace(sampling, seed=(sampling.seed + i + 2**63) % 2**64 - 2**63)
