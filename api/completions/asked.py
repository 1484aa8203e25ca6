"""Reads the choices and log probabilities that a completion request asks for."""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.api.schemas.completions import CompletionRequest
from llmfw.api.text.generation import Generator
from llmfw.api.text.generation_prompt import Output
from llmfw.api.text.given_ids import given_ids, is_constrained
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec


@dataclass(frozen=True, slots=True)
class Asked:
    """The choices and the log probabilities that a request asks for.

    Attributes:
        n: number of choices per prompt to return.
        best_of: number of choices per prompt to generate.
        echo: whether the text begins with the prompt.
        num_top: number of most likely tokens to report at each position; None: no log probabilities.
        given: tokens whose log probabilities are reported at each position.
        is_constrained: whether the log probabilities are those of the constrained logits.
    """

    n: int
    best_of: int
    echo: bool
    num_top: int | None
    given: tuple[int, ...]
    is_constrained: bool

    @classmethod
    def of(cls, body: CompletionRequest, generator: Generator) -> Asked:
        """Read a request's body; raise RequestError if a field is wrong."""
        n, best_of = _numbers_of_choices(body)
        num_top = _num_top(body)
        has_logprobs = num_top is not None
        given = given_ids(body.logprob_token_ids, generator.info, has_logprobs=has_logprobs)
        constrained = is_constrained(body.constrained_logprobs, has_logprobs=has_logprobs)
        return cls(n, best_of, bool(body.echo), num_top, given, constrained)

    @property
    def num_echoed(self) -> int | None:
        """Number of most likely tokens to report at each position of the echo; None: no log probabilities."""
        return self.num_top if self.echo else None

    def output(self, prompt_logprobs: int | None, grammar: GrammarSpec | None) -> Output:
        """Return the output to request for each choice, with log probabilities if they rank the choices."""
        ranks_choices = self.num_top is None and self.best_of > self.n
        return Output(
            logprobs=0 if self.given or ranks_choices else self.num_top,
            logprob_token_ids=self.given,
            prompt_logprobs=_larger(prompt_logprobs, self.num_echoed),
            constrained_logprobs=self.is_constrained,
            grammar=grammar,
        )


def _numbers_of_choices(body: CompletionRequest) -> tuple[int, int]:
    """Return how many choices per prompt to return, and how many to generate."""
    n = body.n or 1
    best_of = n if body.best_of is None else body.best_of
    if best_of < n:
        raise RequestError(f"best_of is {best_of}; it must be at least n ({n})", param="best_of")
    if best_of > n and body.stream:
        raise RequestError(
            f"best_of is {best_of} and n is {n}; in a stream all choices are sent, so they must be equal",
            param="best_of",
        )
    return n, best_of


def _num_top(body: CompletionRequest) -> int | None:
    """Return the number of most likely tokens to report at each position; None: no log probabilities."""
    if body.logprobs is True:
        raise RequestError(
            "logprobs is true; for a completion it must be a number from 0 to 20", param="logprobs"
        )
    return None if body.logprobs is False else body.logprobs


def _larger(one: int | None, other: int | None) -> int | None:
    """Return the larger of two numbers, ignoring None; None if both are None."""
    given = [each for each in (one, other) if each is not None]
    return max(given) if given else None
