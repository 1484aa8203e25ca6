"""Checks grammars before a request is sent to the engine, so that a wrong one is answered with a 400.

Compiles by a backend of its own, outside of the event loop. Knows nothing of what a grammar says.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from llmfw.core.config import OptionValue
from llmfw.core.errors import RequestError
from llmfw.core.grammar import GrammarBackend
from llmfw.core.isolation.calls import PartCalls
from llmfw.core.parts.grammar_choice import build_grammar_backend
from llmfw.core.registry import Entry
from llmfw.core.request import GrammarSpec
from llmfw.core.tokenizer import Tokenizer

CACHE_SIZE = 256  # verdicts that are kept; a verdict is small, but its spec may be a megabyte
LARGE_SPEC = 20_000  # characters; verdicts on larger ones are not kept


class GrammarChecker:
    """Compiles grammars to see whether they can be.

    Args:
        entry: the grammar backend, loaded at the first use; None: there is none.
        tokenizer: the model's.
        vocab_size: width of the model's logits.
        calls: of the backend; None: nobody watches them.
        options: "kind.key" → value.
    """

    def __init__(
        self,
        entry: Entry | None,
        tokenizer: Tokenizer,
        vocab_size: int,
        calls: PartCalls | None = None,
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        self._entry = entry
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._calls = calls
        self._options = options or {}
        self._backend: GrammarBackend | None = None
        self._making = asyncio.Lock()
        self._verdicts: OrderedDict[GrammarSpec, str | None] = OrderedDict()

    async def check(self, spec: GrammarSpec, param: str) -> None:
        """Return if a grammar can be held to.

        Args:
            param: how the client calls it, such as "response_format.json_schema.schema".

        Raises:
            RequestError: it is broken, or asks for what the backend cannot hold to, or there is no backend; names
                the parameter.
            PartError: the backend cannot be imported or built.
            PartFailedError: it raised what it should not.
        """
        if spec in self._verdicts:
            self._verdicts.move_to_end(spec)
            reason = self._verdicts[spec]
        else:
            backend = await self._get_backend(param)
            reason = await asyncio.to_thread(self._reason_against, backend, spec)
            self._keep(spec, reason)
        if reason is not None:
            raise RequestError(f"{param}: {reason}", param=param)

    async def _get_backend(self, param: str) -> GrammarBackend:
        if self._entry is None:
            raise RequestError(
                f"{param} asks for structured output, and this server has no grammar backend", param=param
            )
        async with self._making:
            if self._backend is None:
                self._backend = await asyncio.to_thread(
                    build_grammar_backend, self._entry, self._tokenizer, self._vocab_size, self._options
                )
        return self._backend

    def _keep(self, spec: GrammarSpec, reason: str | None) -> None:
        if len(spec.source) <= LARGE_SPEC:
            self._verdicts[spec] = reason
            if len(self._verdicts) > CACHE_SIZE:
                self._verdicts.popitem(last=False)

    def _reason_against(self, backend: GrammarBackend, spec: GrammarSpec) -> str | None:
        try:
            if self._calls is None:
                backend.compile(spec)
            else:
                self._calls.call(backend.compile, spec)
        except RequestError as error:
            return str(error)
        return None
