"""Turns token events into the text of one choice.

Detokenizes, ends the text at stop strings, and separates reasoning and tool calls from content. Does not
depend on HTTP or on the format of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import EngineError
from llmfw.core.base.request import FinishReason, TokenEvent, TokenLogprob
from llmfw.core.interfaces.parsers import (
    ContentDelta,
    ReasoningDelta,
    ReasoningParser,
    ToolCallDelta,
    ToolParser,
)
from llmfw.core.interfaces.tokenizer import IncrementalDetokenizer

from .scored_tokens import ScoredToken, TokenBytes, TokenSpans
from .stops import Stops

NO_STOPS = Stops()

Delta = ContentDelta | ReasoningDelta | ToolCallDelta


class TextStream:
    """The text of one choice, as it is generated.

    Args:
        detokenizer: a new detokenizer; must not be shared.
        stop: strings that end the text. Within the first `min_tokens` tokens, strings and patterns are
            ignored.
        stops: patterns that end the text, and whether the text includes the stop that ended it.
        reasoning, tools: new parsers, or None.
        one_call: whether to end the text after the first tool call.
        call_reason: finish reason to report in place of "stop" if the text has a tool call.
        keeps_reasoning: whether the text keeps the reasoning as it is, with its markers. The tokens of the
            reasoning are counted all the same.
        token_bytes: function that returns a token's bytes. If given, each piece of content has its tokens and
            their log probabilities (`ScoredContent`). None: the request asks for no log probabilities.

    Attributes:
        finish_reason: "stop", "length" or `call_reason` once the text has ended, None before. The engine may
            still run the request then.
        stopped_by: the stop string, the pattern or the id of the token that ended the text, if one did.
        token_ids: all generated token ids so far, including those of an end token or a stop string.
        num_reasoning_tokens: number of generated tokens that were reasoning.
        num_cached_tokens: number of prompt tokens that came from the prefix cache.
        logprobs: log probabilities of `token_ids`; empty unless the request asks for them.
        prompt_logprobs: log probabilities of the prompt tokens from `prompt_logprobs_start` on. Set by the first event, if the
            request asks for them.
    """

    def __init__(
        self,
        detokenizer: IncrementalDetokenizer,
        *,
        stop: Sequence[str] = (),
        stops: Stops = NO_STOPS,
        min_tokens: int = 0,
        reasoning: ReasoningParser | None = None,
        tools: ToolParser | None = None,
        one_call: bool = False,
        call_reason: str = "tool_calls",
        keeps_reasoning: bool = False,
        token_bytes: TokenBytes | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._stop_strings = stops.search(stop)
        self._stops = stops
        self._min_tokens = min_tokens
        self._reasoning = reasoning
        if reasoning is not None and tools is None:
            reasoning.keeps_calls = False
        self._tools = tools
        self._parses = reasoning is not None or tools is not None
        self._one_call = one_call
        self._call_reason = call_reason
        self._thinking = reasoning is not None and reasoning.in_reasoning
        self._called = False
        self._keeps_reasoning = keeps_reasoning
        apart = None if keeps_reasoning else reasoning
        self._spans = TokenSpans(token_bytes, apart, tools) if token_bytes else None
        self.finish_reason: str | None = None
        self.stopped_by: str | int | None = None
        self.token_ids: list[int] = []
        self.num_reasoning_tokens = 0
        self.num_cached_tokens = 0
        self.logprobs: list[TokenLogprob] = []
        self.prompt_logprobs: list[TokenLogprob] | None = None

    @property
    def may_call(self) -> bool:
        """Whether the text is read for tool calls."""
        return self._tools is not None

    @property
    def scored_tokens(self) -> Sequence[ScoredToken]:
        """All tokens so far with their log probabilities; empty without `token_bytes`."""
        return self._spans.tokens if self._spans else ()

    @property
    def rest(self) -> Sequence[ScoredToken]:
        """Tokens that belong to no content once the text has ended.

        This is the token that ended the text. Empty if a stop string ended the text. Only meaningful without
        parsers.
        """
        return () if self._spans is None or isinstance(self.stopped_by, str) else self._spans.rest()

    def feed(self, event: TokenEvent) -> Sequence[Delta]:
        """Process the next event; return the deltas that it adds.

        Must not be called once `finish_reason` is set.
        """
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if self._spans is None and (len(event.token_ids) < 2 or not self._counts):
            return self._feed(event)
        # Feed tokens one by one, to learn which text each one adds, and to count none after the end.
        deltas: list[Delta] = []
        for part in _single_tokens(event, scored=self._spans is not None):
            new = self._feed(part)
            if self._spans is None:
                _extend(deltas, new)
            else:
                deltas += self._scored(self._spans, new)
            if self.finish_reason is not None:
                break
        return deltas

    def _feed(self, event: TokenEvent) -> Sequence[Delta]:
        token_ids = event.token_ids
        self.token_ids += token_ids
        self.logprobs += event.logprobs or ()
        if event.cached_tokens:
            self.num_cached_tokens = event.cached_tokens
        if event.finish_reason is FinishReason.STOP and token_ids:
            self.stopped_by = token_ids[-1]
            if not self._stops.keep or token_ids[-1] in self._stops.silent:
                token_ids = token_ids[:-1]  # the end or stop token is not part of the text
        ended = event.finish_reason is not None
        text = self._detokenizer.feed(token_ids)
        if ended:
            text += self._detokenizer.finish()
        if self._spans is not None and event.logprobs:
            if token_ids:
                self._spans.add(token_ids[0], event.logprobs[0], text)
            else:
                self._spans.complete(text)
                self._spans.add_end(event.token_ids[0], event.logprobs[0])
        if self._stop_strings is not None and len(self.token_ids) > self._min_tokens:
            text, stop = self._stop_strings.feed(text)
            if stop is not None:
                self.stopped_by, ended = stop, True
                self.finish_reason = "stop"
            elif ended:
                text += self._stop_strings.finish()
        deltas: Sequence[Delta] = self._parse(text, ended) if self._parses else _content(text)
        if self._reasoning is not None:
            self._count_reasoning(deltas, len(event.token_ids))
        if self._keeps_reasoning:
            deltas = _content(text)
        if ended and self.finish_reason is None:
            self.finish_reason = str(event.finish_reason)
        if self.finish_reason == "stop" and self._called:
            self.finish_reason = self._call_reason
        return deltas

    @property
    def _counts(self) -> bool:
        """Whether the tokens of an event must be counted one by one.

        This is necessary if the text may end inside an event, or if only a part of an event may be reasoning.
        """
        return self._stop_strings is not None or self._one_call or self._reasoning is not None

    def _parse(self, text: str, ended: bool) -> list[Delta]:
        """Run text through the reasoning parser, and its content through the tool parser."""
        deltas: list[Delta] = []
        if self._reasoning is None:
            deltas += self._parse_content(text, ended)
        else:
            parts = list(self._reasoning.feed(text)) if text else []
            if ended:
                parts += self._reasoning.finish()
            for part in parts:
                if isinstance(part, ReasoningDelta):
                    deltas.append(part)
                else:
                    deltas += self._parse_content(part.text, False)
            if ended:
                deltas += self._parse_content("", True)
        return self._record_calls(deltas)

    def _parse_content(self, text: str, ended: bool) -> list[Delta]:
        if self._tools is None:
            return _content(text)
        deltas: list[Delta] = list(self._tools.feed(text)) if text else []
        if ended:
            deltas += self._tools.finish()
        return deltas

    def _record_calls(self, deltas: list[Delta]) -> list[Delta]:
        """Record whether the deltas contain a tool call, and return the deltas.

        If only one call is wanted, ends the text before the second call and returns the deltas before it.
        """
        for i, delta in enumerate(deltas):
            if isinstance(delta, ToolCallDelta):
                if self._one_call and delta.index > 0:
                    self.finish_reason = "stop"
                    return deltas[:i]
                self._called = True
        return deltas

    @staticmethod
    def _scored(spans: TokenSpans, deltas: Sequence[Delta]) -> list[Delta]:
        """Return the deltas, with each content delta replaced by a `ScoredContent`, which has its tokens."""
        scored: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, ContentDelta):
                scored.append(spans.content(delta.text))
                continue
            scored.append(delta)
            if isinstance(delta, ReasoningDelta):
                spans.reasoning(delta.text)
            else:
                spans.call()
        spans.end_event(in_call=bool(deltas) and isinstance(deltas[-1], ToolCallDelta))
        return scored

    def _count_reasoning(self, deltas: Sequence[Delta], num_tokens: int) -> None:
        if deltas:
            self._thinking = isinstance(deltas[-1], ReasoningDelta)
        if self._thinking:
            self.num_reasoning_tokens += num_tokens


def _single_tokens(event: TokenEvent, *, scored: bool) -> list[TokenEvent]:
    """Split an event into events of one token each.

    Args:
        scored: whether the request asks for log probabilities.

    Raises:
        EngineError: `scored` is true, and the event lacks log probabilities.
    """
    if not event.token_ids:
        return [event]
    logprobs = event.logprobs
    if scored and (logprobs is None or len(logprobs) != len(event.token_ids)):
        raise EngineError(
            "the engine gave no log probabilities of the new tokens, though it was asked for them"
        )
    parts = [
        TokenEvent(event.id, [token_id], logprobs=logprobs[i : i + 1] if logprobs else None)
        for i, token_id in enumerate(event.token_ids)
    ]
    parts[0].cached_tokens = event.cached_tokens
    parts[-1].finish_reason = event.finish_reason
    return parts


def _extend(deltas: list[Delta], new: Sequence[Delta]) -> None:
    """Append new deltas to a list, merging adjacent text deltas of the same kind."""
    for delta in new:
        last = deltas[-1] if deltas else None
        if isinstance(delta, ContentDelta) and isinstance(last, ContentDelta):
            deltas[-1] = ContentDelta(last.text + delta.text)
        elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
            deltas[-1] = ReasoningDelta(last.text + delta.text)
        else:
            deltas.append(delta)


def _content(text: str) -> list[Delta]:
    return [ContentDelta(text)] if text else []
