"""Scores continuations of a prompt by the log probabilities of a model that generates."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.api.completions.service import MAX_TOGETHER
from llmfw.api.text.generation import Generator
from llmfw.api.text.generation_prompt import GenerationPrompt, Output
from llmfw.api.text.prompt_fit import check_token_ids
from llmfw.api.text.terms import Terms
from llmfw.core.base.errors import EngineError, RequestError
from llmfw.core.base.request import MAX_LOGPROB_TOKEN_IDS, SamplingParams, TokenLogprob
from llmfw.core.interfaces.route_services import ContinuationScore, Scores

_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)


class Scorer:
    """Runs the requests that scores need.

    Args:
        generator: generator of the server's model.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def score(self, prompt: list[int], added: Sequence[list[int]], terms: Terms) -> Scores:
        """Return the score of each continuation.

        Args:
            prompt: token ids of the prompt.
            added: token ids of each continuation.

        Raises:
            RequestError: there are no continuations or too many, or one has no tokens or unknown ones.
        """
        if not 0 < len(added) <= MAX_TOGETHER:
            raise RequestError(
                f"there are {len(added)} continuations; give 1 to {MAX_TOGETHER}", param="continuations"
            )
        for i, tokens in enumerate(added):
            if not tokens:
                raise RequestError(
                    f"continuations[{i}] has no tokens; at least one is needed", param=f"continuations[{i}]"
                )
            check_token_ids(f"continuations[{i}]", tokens, self._generator.info)
        named = tuple(dict.fromkeys(tokens[0] for tokens in added))
        if max(map(len, added)) == 1 and len(named) <= MAX_LOGPROB_TOKEN_IDS:
            return await self._score_next(prompt, added, named, terms)
        return await self._score_prompts(prompt, added, terms)

    async def _score_next(
        self, prompt: list[int], added: Sequence[list[int]], named: tuple[int, ...], terms: Terms
    ) -> Scores:
        """Score continuations of one token each, by one request."""
        records = await self._run([prompt], Output(logprobs=0, logprob_token_ids=named), terms)
        first = records[0][0]
        found = dict(zip(first.given_ids, first.given_logprobs, strict=True))
        scores = [_score_of(tokens, [found[tokens[0]]]) for tokens in added]
        return Scores(continuations=scores, prompt_tokens=len(prompt))

    async def _score_prompts(self, prompt: list[int], added: Sequence[list[int]], terms: Terms) -> Scores:
        """Score each continuation as the end of a prompt of its own. They share the prompt's keys and values."""
        if not prompt:
            raise RequestError(
                "the prompt has no tokens; at least one is needed before a continuation", param="prompt"
            )
        prompts = [prompt + tokens for tokens in added]
        records = await self._run(
            prompts, Output(prompt_logprobs=0, prompt_logprobs_start=len(prompt)), terms
        )
        scores = [
            _score_of(tokens, [each.logprob for each in record[-len(tokens) :]])
            for tokens, record in zip(added, records, strict=True)
        ]
        return Scores(continuations=scores, prompt_tokens=sum(map(len, prompts)))

    async def _run(
        self, prompts: Sequence[list[int]], output: Output, terms: Terms
    ) -> list[list[TokenLogprob]]:
        """Return the log probabilities of each prompt's tokens, or of the token after each prompt."""
        generator = self._generator
        make_text = generator.plain_text(_SAMPLING, skip_special_tokens=True, logprobs=False)
        generation = generator.start_prompts(
            "score-",
            [GenerationPrompt(prompt, _SAMPLING, make_text, output) for prompt in prompts],
            terms=terms,
        )
        await generation.finish()
        asks_prompt = output.prompt_logprobs is not None
        found = [
            (choice.text.prompt_logprobs if asks_prompt else choice.text.logprobs) or []
            for choice in generation.choices
        ]
        if not all(found):
            raise EngineError("the engine returned no log probabilities")
        return found


def _score_of(tokens: Sequence[int], logprobs: Sequence[float]) -> ContinuationScore:
    return ContinuationScore(logprob=sum(logprobs), token_ids=tuple(tokens), token_logprobs=tuple(logprobs))
