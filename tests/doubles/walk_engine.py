"""A double of a model that knows nothing: each token is drawn evenly among those that the request allows.
With one chance in three it is one that has a bias, or else an end, where these are allowed.

What holds its outputs is real: the engine's `Constraint` and a grammar backend. Its thoughts are of ordinary tokens.
"""

from __future__ import annotations

import random
from collections import deque

import numpy as np

from llmfw.core.base.request import FinishReason, Request, TokenEvent
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.schedule.constraint import Constraint, constraint_of
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend

from .echo_engine import VOCAB_SIZE, EchoEngine

CLOSE = 0.1  # probability that a thought ends after a token


class _Walk:
    """One output."""

    def __init__(self, request: Request, constraint: Constraint | None) -> None:
        self.request = request
        self.constraint = constraint
        self.draw = random.Random(request.sampling.seed)
        self.closing: deque[int] = deque()
        self.num_tokens = 0


class WalkEngine(EchoEngine):
    """Has the interface of `llmfw.core.engine.generation.engine.Engine`.

    Args:
        tokenizer: of the model; the letters are its ordinary tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(max_model_len=4096)
        self.backend = LlguidanceBackend(tokenizer, VOCAB_SIZE)
        self._ordinary = tokenizer.encode("abcdefghijklmnopqrstuvwxyz")
        self._walks: dict[str, _Walk] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._walks)

    def add(self, request: Request) -> None:
        self.requests.append(request)
        grammar = self.backend.compile(request.grammar) if request.grammar else None
        self._walks[request.id] = _Walk(request, constraint_of(request, grammar))

    def abort(self, request_id: str) -> None:
        if self._walks.pop(request_id, None):
            self.aborted.append(request_id)

    def step(self) -> list[TokenEvent]:
        return [self._step(walk) for walk in list(self._walks.values())]

    def _step(self, walk: _Walk) -> TokenEvent:
        token = self._next(walk)
        if walk.constraint is not None:
            walk.constraint.accept(token)
        walk.num_tokens += 1
        reason = None
        if token in walk.request.eos_token_ids:
            reason = FinishReason.STOP
        elif walk.num_tokens == walk.request.sampling.max_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            del self._walks[walk.request.id]
        return TokenEvent(walk.request.id, [token], reason)

    def _next(self, walk: _Walk) -> int:
        constraint, thinking = walk.constraint, walk.request.thinking
        if walk.closing:
            return walk.closing.popleft()
        if constraint is None or not constraint.has_mask:
            return walk.draw.choice([*self._ordinary, walk.request.eos_token_ids[0]])
        words = np.full((VOCAB_SIZE + 31) // 32, -1, np.int32)
        grammar = constraint.grammar_to_ask
        if grammar is not None:
            self.backend.fill_masks([grammar], words[None])
        constraint.edit_mask(words)
        if grammar is None and not constraint.forced:  # it thinks
            assert thinking is not None
            if walk.draw.random() < CLOSE:
                walk.closing.extend(thinking.end[1:])
                return thinking.end[0]
            return walk.draw.choice(self._ordinary)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        allowed = [int(token) for token in np.flatnonzero(bits)]
        likely = [token for token in allowed if token in walk.request.sampling.logit_bias]
        if not likely:
            likely = [token for token in allowed if token in walk.request.eos_token_ids]
        return walk.draw.choice(likely if likely and walk.draw.random() < 1 / 3 else allowed)
