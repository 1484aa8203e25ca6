"""Checks grammars before a request is sent to the engine, so that a wrong or too costly grammar gets a 400.

Other processes compile the grammars (`core.grammars`). Results are cached, so each grammar is compiled only
once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from llmfw.core.base.errors import ComponentFailedError, GrammarCostError, RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.grammars.messages import Launch, Limits
from llmfw.core.grammars.prover import BackendFailureError, GrammarProver
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry

MAX_VERDICTS = 1024
MAX_CACHED_CHARS = 64_000_000  # total characters of cached grammars
COSTLY_KEPT_S = 600.0
"""Seconds for which a too costly grammar stays refused.

Such refusals expire, because a harmless grammar may time out on a busy machine.
"""

Key = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason why a grammar is refused, and the `monotonic` time until which the refusal is cached."""

    reason: str
    code: str | None
    until: float


@dataclass(slots=True)
class _Shared:
    """A grammar that is being compiled, and the number of requests that wait for it."""

    task: asyncio.Task[GrammarSpec | _Refusal]
    num_waiting: int = 0


class GrammarChecker:
    """Checks grammars by compiling them in other processes. Not thread-safe: use it from one event loop.

    Args:
        entry: registry entry of the grammar backend; None: no backend.
        tokenizer: tokenizer of the model.
        vocab_size: width of the model's logits.
        calls: recorder of the backend's calls and failures; None: failures are not recorded.
        options: options of components, "kind.key" → value.
        limits: limits on the cost of one grammar.
    """

    def __init__(
        self,
        entry: Entry | None,
        tokenizer: Tokenizer,
        vocab_size: int,
        calls: ComponentCalls | None = None,
        options: Mapping[str, OptionValue] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._calls = calls
        self._verdicts: OrderedDict[Key, GrammarSpec | _Refusal] = OrderedDict()
        self._num_chars = 0
        self._shared: dict[Key, _Shared] = {}
        self._prover: GrammarProver | None = None
        if entry is not None:
            found, given = entry, dict(options or {})
            self._prover = GrammarProver(
                lambda: _launch(found, tokenizer, vocab_size, given, limits or Limits())
            )

    async def check(self, spec: GrammarSpec, param: str, tenant: str = "") -> GrammarSpec:
        """Return the prepared grammar that the engine compiles instead of `spec`.

        Args:
            param: request field of the grammar, such as "response_format.json_schema.schema".
            tenant: tenant of the request; tenants are served in turns.

        Raises:
            RequestError: the grammar is invalid, costs too much, or asks for something that the backend
                cannot enforce; or there is no backend. Names the request field.
            OverloadedError: too many grammars wait to be compiled.
            ComponentError: the backend cannot be imported or built.
            ComponentFailedError: the backend raised an unexpected error.
        """
        if self._prover is None:
            raise RequestError(
                f"{param} asks for structured output, and this server has no grammar backend; the operator can choose one with --grammar",
                param=param,
            )
        key = (spec.kind, hashlib.sha256(spec.source.encode("utf-8", "surrogatepass")).digest())
        verdict = self._known(key)
        if verdict is None:
            verdict = await self._ask(key, spec, tenant, self._prover)
        if isinstance(verdict, _Refusal):
            raise RequestError(f"{param}: {verdict.reason}", param=param, code=verdict.code)
        return verdict

    async def close(self) -> None:
        """Stop the processes that compile grammars."""
        if self._prover is not None:
            await self._prover.close()

    def _known(self, key: Key) -> GrammarSpec | _Refusal | None:
        verdict = self._verdicts.get(key)
        if verdict is None or (isinstance(verdict, _Refusal) and verdict.until < monotonic()):
            return None
        self._verdicts.move_to_end(key)
        return verdict

    async def _ask(
        self, key: Key, spec: GrammarSpec, tenant: str, prover: GrammarProver
    ) -> GrammarSpec | _Refusal:
        """Compile a grammar in another process; return the prepared `GrammarSpec`, or a `_Refusal`.

        Concurrent requests for the same grammar share one compilation.
        """
        shared = self._shared.get(key)
        if shared is None:
            task = asyncio.create_task(self._prove(key, spec, tenant, prover))
            shared = self._shared[key] = _Shared(task)
        shared.num_waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.num_waiting -= 1
            if not shared.num_waiting:
                if self._shared.get(key) is shared:
                    del self._shared[key]
                shared.task.cancel()

    async def _prove(
        self, key: Key, spec: GrammarSpec, tenant: str, prover: GrammarProver
    ) -> GrammarSpec | _Refusal:
        verdict: GrammarSpec | _Refusal
        try:
            verdict = await prover.prove(spec, tenant)
        except RequestError as error:
            is_costly = isinstance(error, GrammarCostError)
            verdict = _Refusal(str(error), error.code, monotonic() + COSTLY_KEPT_S if is_costly else math.inf)
        except BackendFailureError as error:
            raise self._failed(error) from error
        self._keep(key, verdict)
        return verdict

    def _failed(self, error: BackendFailureError) -> ComponentFailedError:
        if self._calls is None:
            return ComponentFailedError(f"the grammar backend failed: {error}")
        error.add_note(error.detail)
        return self._calls.failed(error, error.where)

    def _keep(self, key: Key, verdict: GrammarSpec | _Refusal) -> None:
        self._drop(key)
        self._verdicts[key] = verdict
        self._num_chars += _num_chars(verdict)
        while len(self._verdicts) > MAX_VERDICTS or self._num_chars > MAX_CACHED_CHARS:
            self._drop(next(iter(self._verdicts)))

    def _drop(self, key: Key) -> None:
        self._num_chars -= _num_chars(self._verdicts.pop(key, None))


def _num_chars(verdict: GrammarSpec | _Refusal | None) -> int:
    return len(verdict.source) if isinstance(verdict, GrammarSpec) else 0


def _launch(
    entry: Entry,
    tokenizer: Tokenizer,
    vocab_size: int,
    options: dict[str, OptionValue],
    limits: Limits,
) -> Launch:
    """Return the launch data for the processes that compile grammars."""
    return Launch(
        entry=dataclasses.asdict(entry),
        options=options,
        tokenizer=tokenizer.to_json(),
        eos_token_ids=tuple(tokenizer.eos_token_ids),
        special_tokens=dict(tokenizer.special_tokens),
        vocab_size=vocab_size,
        limits=limits,
        import_path=tuple(sys.path),
    )
