"""One running completion: selects the choices to return, with their texts and log probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from llmfw.api.schemas.common import Usage
from llmfw.api.schemas.logprobs import CompletionLogprobs
from llmfw.api.text.choice import Choice
from llmfw.api.text.endings import Ending, ending_of
from llmfw.api.text.extras import prompt_logprobs_of
from llmfw.api.text.generation import Generation
from llmfw.api.text.logprobs import completion_logprobs, mean_logprob, prompt_tokens, tokens_of
from llmfw.api.text.scored_tokens import ScoredToken
from llmfw.api.text.slices import ListWriter, Slices
from llmfw.api.text.text_stream import Delta
from llmfw.api.text.usage import usage_of
from llmfw.core.base.errors import EngineError
from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.parsers import ContentDelta
from llmfw.core.interfaces.tokenizer import Tokenizer

from .prompts import Prompt


class CompletionGeneration:
    """The choices of one completion, prompt-major, and the settings of the reply.

    Args:
        generation: a generation with the same number of choices for each prompt.
        n: number of choices to return per prompt.
        echo: whether to put the prompt before the generated text.
        num_top: number of most likely tokens to return at each position of the output and, with `echo`, of
            the prompt; None: no log probabilities.
        scores_only: whether only the prompt's scores are requested. The engine still generates one token,
            which is neither returned nor counted.
        skip_special_tokens: whether the text of a prompt given as token ids omits special tokens.
        slices: scheduler of the work on large lists, shared by all requests.
    """

    def __init__(
        self,
        generation: Generation,
        tokenizer: Tokenizer,
        prompts: Sequence[Prompt],
        *,
        n: int,
        echo: bool,
        num_top: int | None,
        scores_only: bool,
        skip_special_tokens: bool,
        slices: Slices,
    ) -> None:
        self.generation = generation
        self.num_prompts = len(prompts)
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._n = n
        self._echo = echo
        self._num_top = num_top
        self._logprobs = logprobs = num_top is not None
        self._scores_only = scores_only
        self._skip = skip_special_tokens
        self._slices = slices
        self._per_prompt = len(generation.choices) // len(prompts)
        self._texts = [self._text(prompt) for prompt in prompts] if echo or logprobs else [""] * len(prompts)
        self._scored_prompts: dict[int, Any] = {}  # by index of the prompt
        self._echo_logprobs: dict[int, CompletionLogprobs] = {}  # by index of the prompt

    @property
    def echoes_logprobs(self) -> bool:
        """Whether the prompts' log probabilities are part of the reply."""
        return self._echo and self._logprobs

    @property
    def returns_text(self) -> bool:
        """Whether the generated tokens are part of the reply."""
        return not self._scores_only

    async def prompt_logprobs(self, choice: Choice) -> Any:
        """Return the log probabilities of a choice's prompt in vLLM's format as a `msgspec.Raw`; UNSET: none."""
        num_top = self.generation.extras.prompt_logprobs
        if num_top is None:
            return UNSET
        index = self.prompt_index(choice)
        if index not in self._scored_prompts:
            first = self.first(choice)
            self._scored_prompts[index] = await prompt_logprobs_of(
                first, num_top, self._tokenizer, self._slices
            )
        return self._scored_prompts[index]

    def best(self) -> list[Choice]:
        """Return the `n` choices of each prompt with the highest mean log probability."""
        found: list[Choice] = []
        for start in range(0, len(self.generation.choices), self._per_prompt):
            choices = self.generation.choices[start : start + self._per_prompt]
            if self._n < self._per_prompt:
                choices = sorted(choices, key=lambda c: -mean_logprob(c.text.scored_tokens))
            found += choices[: self._n]
        return found

    def prompt_index(self, choice: Choice) -> int:
        """Return the index of the prompt that a choice continues."""
        return choice.index // self._per_prompt

    def first(self, choice: Choice) -> Choice:
        """Return the first choice of the same prompt, which has the prompt's log probabilities."""
        return self.siblings(choice)[0]

    def siblings(self, choice: Choice) -> Sequence[Choice]:
        """Return all choices of the same prompt, including this one."""
        start = self.prompt_index(choice) * self._per_prompt
        return self.generation.choices[start : start + self._per_prompt]

    async def echo_of(self, choice: Choice) -> tuple[str, CompletionLogprobs | None]:
        """Return the echoed prompt of a choice, and the prompt's log probabilities if they are requested.

        The log probabilities are known once the prompt's first choice has had its first event.
        """
        if not self._echo:
            return "", None
        index = self.prompt_index(choice)
        if self._logprobs and index not in self._echo_logprobs:
            self._echo_logprobs[index] = await self._prompt_logprobs(self.first(choice))
        return self._texts[index], self._echo_logprobs.get(index)

    def piece(self, choice: Choice, deltas: Sequence[Delta]) -> tuple[str, CompletionLogprobs | None]:
        """Return the text of a choice's deltas, and the log probabilities of their tokens, if any."""
        if self._scores_only:
            return "", None
        text = "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])
        tokens = tokens_of(deltas) if self._logprobs else []
        return text, self._entries(tokens, self._offset(choice)) if tokens else None

    async def whole(self, choice: Choice, deltas: Sequence[Delta]) -> tuple[str, CompletionLogprobs | None]:
        """Return the same as `piece` for the deltas of a whole choice. Other requests can run in between."""
        if self._scores_only or not self._logprobs:
            return self.piece(choice, deltas)
        text = "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])
        tokens = tokens_of(deltas)
        weight = 1 + len(tokens[0].top) + len(tokens[0].given) if tokens else 1
        entries = await self._entries_in_slices(tokens, self._offset(choice), weight)
        return text, entries if tokens else None

    def last(self, choice: Choice) -> CompletionLogprobs | None:
        """Return the log probabilities of a choice's last tokens without text; None if there are none."""
        tokens = choice.text.rest if self._logprobs and not self._scores_only else ()
        return self._entries(tokens, self._offset(choice)) if tokens else None

    async def joined(self, *parts: CompletionLogprobs | None) -> CompletionLogprobs | None:
        """Join log probabilities into one object whose lists are encoded JSON; None if none are requested."""
        if not self._logprobs:
            return None
        tokens, own, top, offsets = (ListWriter(self._slices) for _ in range(4))
        for part in parts:
            if part is not None:
                await tokens.extend(part.tokens, _as_it_is)
                await own.extend(part.token_logprobs, _as_it_is)
                await top.extend(
                    part.top_logprobs, _as_it_is, 1 + len((part.top_logprobs or [None])[-1] or ())
                )
                await offsets.extend(part.text_offset, _as_it_is)
        return CompletionLogprobs(tokens.json(), own.json(), top.json(), offsets.json())

    def finish_reason(self, choice: Choice) -> str | None:
        """Return why a choice ended: "length" if only the prompt's scores are requested."""
        return "length" if self._scores_only else choice.text.finish_reason

    def ending(self, choice: Choice) -> Ending:
        """Return how a choice ended. If only the prompt's scores are requested, no stop is reported."""
        return ending_of(choice, is_counted=not self._scores_only)

    def usage(self) -> Usage:
        """Return the token counts so far, including those of choices that are not returned."""
        return usage_of(self.generation, self.num_prompts, scores_only=self._scores_only)

    def _text(self, prompt: Prompt) -> str:
        if prompt.text is not None:
            return prompt.text
        return self._tokenizer.decode(prompt.token_ids, skip_special_tokens=self._skip)

    def _offset(self, choice: Choice) -> int:
        return len(self._texts[self.prompt_index(choice)])

    async def _prompt_logprobs(self, choice: Choice) -> CompletionLogprobs:
        prompt, logprobs = choice.request.prompt, choice.text.prompt_logprobs or []
        if len(logprobs) != len(prompt) - 1:
            raise EngineError(
                "the engine gave no log probabilities of the prompt, though it was asked for them"
            )
        k = self._num_top or 0  # `prompt_logprobs` may have asked for more
        records = [TokenLogprob(r.logprob, r.top_ids[:k], r.top_logprobs[:k]) for r in logprobs]
        tokens = prompt_tokens(prompt, records, self._tokenizer, self._texts[self.prompt_index(choice)])
        return await self._entries_in_slices(tokens, 0, 1 + k)

    async def _entries_in_slices(
        self, tokens: Iterable[ScoredToken], offset: int, weight: int
    ) -> CompletionLogprobs:
        whole = CompletionLogprobs([], [], [], [])
        async for some in self._slices.of(tokens, weight):
            part = self._entries(some, offset)
            whole.tokens += part.tokens
            whole.token_logprobs += part.token_logprobs
            whole.top_logprobs += part.top_logprobs
            whole.text_offset += part.text_offset
        return whole

    def _entries(self, tokens: Sequence[ScoredToken], offset: int) -> CompletionLogprobs:
        return completion_logprobs(tokens, offset, names_ids=self.generation.extras.names_ids)


def _as_it_is(item: object) -> object:
    return item
