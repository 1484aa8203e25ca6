"""One running request to /generate: its choices, and the reply of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from llmfw.api.schemas.native import GenerateReply, MetaInfo
from llmfw.api.text.choice import Choice
from llmfw.api.text.generation import Generation

from .logprobs import LogprobForm


class NativeGeneration:
    """A running generation, prompt-major.

    Args:
        generation: a generation with the same number of choices for each prompt.
        ids: ids of the choices for the client.
        n: number of choices per prompt.
        is_list: whether the reply is a list.
        unread: for each prompt, whether it is only scored, so that no generated token is returned.
        counts_reasoning: for each prompt, whether its choices report the number of their reasoning tokens.
        logprobs: formatter for log probabilities; None: the client wants none.
        started: `time.monotonic()` at the start of the request.
    """

    def __init__(
        self,
        generation: Generation,
        *,
        ids: Sequence[str],
        n: int,
        is_list: bool,
        unread: Sequence[bool],
        counts_reasoning: Sequence[bool],
        logprobs: LogprobForm | None,
        started: float,
    ) -> None:
        self.generation = generation
        self.is_list = is_list
        self._ids = ids
        self._n = n
        self._unread = unread
        self._counts_reasoning = counts_reasoning
        self._logprobs = logprobs
        self._started = started
        self._held: dict[int, dict[int, Choice]] = {}  # by prompt, then by choice

    def is_unread(self, choice: Choice) -> bool:
        """Return whether no generated token of a choice is returned."""
        return self._unread[choice.index // self._n]

    def ready(self, choice: Choice) -> Sequence[Choice]:
        """Return the choices whose replies can be streamed after an event of this choice.

        A prompt's first choice receives the prompt's log probabilities. The other choices are held back until
        then.
        """
        prompt = choice.index // self._n
        if self._n == 1 or self._logprobs is None or self._logprobs.is_ready(self._first(choice)):
            return list(({choice.index: choice} | self._held.pop(prompt, {})).values())
        self._held.setdefault(prompt, {})[choice.index] = choice
        return ()

    async def reply(self, choice: Choice, text: str) -> GenerateReply:
        """Return the reply of one choice, with its text so far."""
        prompt = choice.index // self._n
        unread, ended = self._unread[prompt], choice.text.finish_reason is not None
        token_ids = [] if unread else list(choice.text.token_ids)
        counts = self._counts_reasoning[prompt]
        meta = MetaInfo(
            id=self._ids[choice.index],
            finish_reason=_finish_reason(choice, len(token_ids), unread=unread),
            prompt_tokens=len(choice.request.prompt),
            completion_tokens=len(token_ids),
            cached_tokens=choice.text.num_cached_tokens,
            reasoning_tokens=(0 if unread else choice.text.num_reasoning_tokens) if counts else UNSET,
            e2e_latency=time.monotonic() - self._started if ended else UNSET,
        )
        if self._logprobs is not None:
            await self._logprobs.fill(meta, choice, self._first(choice), unread=unread)
        return GenerateReply(text="" if unread else text, output_ids=token_ids, meta_info=meta)

    def _first(self, choice: Choice) -> Choice:
        return self.generation.choices[choice.index - choice.index % self._n]


def _finish_reason(choice: Choice, num_tokens: int, *, unread: bool) -> dict[str, Any] | None:
    reason = choice.text.finish_reason
    if reason is None:
        return None
    if reason == "length" or unread:
        return {"type": "length", "length": num_tokens}
    return {"type": reason, "matched": choice.text.stopped_by}
