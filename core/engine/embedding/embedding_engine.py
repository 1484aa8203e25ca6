"""The engine for encoders, which computes one batch of vectors per step. Has the interface of `Engine`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import Answer, EngineCommand, GetPolicy, PolicyInfo
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import ConfigError, ContextLengthError, RequestError
from llmfw.core.base.request import EmbedRequest, FinishReason, TokenEvent
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.model.device.devices import choose_device, on_device
from llmfw.core.model.quantization.chosen_scheme import choose_scheme
from llmfw.core.plugin.calls import ComponentLedger
from llmfw.core.plugin.containment import contained
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.deferral import Limits

from ..admission.deadlines import Deadlines, deadline_error
from ..admission.queue_gate import QueueGate
from ..generation.capacity import DEFAULT_CHUNK, DEFAULT_MAX_RUNNING
from ..generation.deferrable_budget import DeferrableBudget
from .batch_faults import BatchFaults
from .classifier import Classifier
from .embed_lane import Waiting
from .embed_queue import EmbedQueue
from .encoder import Encoder
from .matryoshka import load_matryoshka
from .meaningless_settings import MEANINGLESS, UNUSED_KINDS
from .pooling import prompt_names

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    """A request whose vectors are being computed.

    Attributes:
        vectors: vectors computed so far, as bytes, by index of the prompt.
        seconds: total compute time of the request's batches.
    """

    request: EmbedRequest
    vectors: dict[int, bytes] = field(default_factory=dict)
    seconds: float = 0.0


class EmbeddingEngine:
    """Computes vectors for requests. Not thread-safe: only one thread may call its methods.

    Args:
        info: description of the engine.
        encoder: computes batches.
        queue: chooses the prompts of a batch.
        deferrable_budget: limits batches of deferrable prompts.
        gate: refuses requests if the queue is full; accepted requests count as waiting until they end.
        faults: finds the cause of a failed batch.
        clock: monotonic clock in seconds.
        ledger: record of the calls of components.
    """

    has_own_threads = False

    def __init__(
        self,
        info: EngineInfo,
        encoder: Encoder | Classifier,
        queue: EmbedQueue,
        deferrable_budget: DeferrableBudget,
        gate: QueueGate,
        faults: BatchFaults,
        clock: Callable[[], float] = time.monotonic,
        ledger: ComponentLedger | None = None,
    ) -> None:
        self.info = info
        self._device = torch.device(info.device)
        self._encoder = encoder
        self._queue = queue
        self._deferrable_budget = deferrable_budget
        self._gate = gate
        self._faults = faults
        self._deadlines = Deadlines()
        self._clock = clock
        self._ledger = ledger or ComponentLedger()
        self._open: dict[str, _Open] = {}
        self._report_step: Callable[[StepSizes], None] = lambda sizes: None

    @classmethod
    def build(cls, config: EngineConfig, registry: Registry, *, classifies: bool = False) -> EmbeddingEngine:
        """Load the model, and return an engine for it.

        Args:
            classifies: whether to load the model with its classification head; the vectors are then logits.

        Raises:
            ConfigError: the model cannot be found, loaded or served; a setting has no meaning for the model;
                or the quantization scheme cannot be used.
            ComponentError: the weight loader or the quantization scheme is faulty.
        """
        _check_settings(config)
        device = choose_device(config.device, config.place)
        scheme = choose_scheme(config, registry)
        with on_device(device):
            encoder = (Classifier if classifies else Encoder).load(config, device, registry, scheme)
        chunk = config.chunked_prefill_size
        batch_tokens = config.max_prefill_tokens if chunk == -1 else chunk or DEFAULT_CHUNK[device.type]
        batch_size = config.max_running_requests or DEFAULT_MAX_RUNNING[device.type]
        queue = EmbedQueue(
            batch_tokens, batch_size, window_tokens=config.max_prefill_tokens, share=config.batch_share
        )
        info = _describe(config, encoder, device, batch_size)
        logger.info(
            "%s, batch tokens=%d, max_running_requests=%d, context_len=%d",
            *(_summary(encoder, info), batch_tokens, batch_size, info.max_model_len),
        )
        gate = QueueGate.of(config, batch_size)
        budget = DeferrableBudget(Limits(batch_size, batch_tokens))
        faults = BatchFaults(device, None if scheme is None else registry.ledger.of(scheme.entry))
        return cls(info, encoder, queue, budget, gate, faults, ledger=registry.ledger)

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._open)

    @property
    def sleep_s(self) -> None:
        """None: only `add` makes `has_work` true."""
        return None

    @property
    def has_background_work(self) -> bool:
        """False: this engine has no background work."""
        return False

    def do_background_work(self) -> None:
        """Do nothing."""

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        """Do nothing, because only `add` gives this engine work, and the caller of `add` needs no wake-up."""

    @property
    def cache_journal(self) -> None:
        """None: there is no prefix cache."""

    def call_before_steps(self, report: Callable[[StepSizes], None]) -> None:
        """Register a function to call with each batch's sizes, before the batch is computed."""
        self._report_step = report

    def add(self, request: EmbedRequest) -> None:
        """Accept a request.

        Raises:
            RequestError: the request cannot be served.
            OverloadedError: the queue is full.
        """
        self._check(request)
        now = self._clock()
        if not request.deferrable:
            num_tokens = sum(map(len, request.prompts))
            is_key = request.tenant_is_key
            self._gate.check_request(request, num_tokens, now)
            self._gate.enter(request.id, num_tokens, request.tenant, is_key=is_key)
            self._gate.rate.note(0, self._gate.num_waiting, now)
        if request.timeout_s is not None:
            self._deadlines.add(request.id, request.timeout_s, now)
        self._open[request.id] = _Open(request)
        self._queue.add(request)

    def abort(self, request_id: str) -> None:
        """End a request without an event. Unknown ids are ignored."""
        if (ended := self._open.pop(request_id, None)) is not None:
            self._queue.remove(ended.request)
            self._leave(request_id)

    def step(self) -> list[TokenEvent]:
        """Compute one batch; return the final events of requests that are now complete, or whose timeout has
        passed."""
        late = self._end_late()
        begun = self._deferrable_budget.begin()
        batch = self._queue.take(self._deferrable_budget.limits())
        if not batch:
            return late
        num_tokens = sum(len(waiting.prompt) for waiting in batch)
        longest = max(len(waiting.prompt) for waiting in batch)
        self._report_step(StepSizes(num_tokens, len(batch), longest=longest, num_waiting=len(self._queue)))
        failed = []
        for waiting, vector in zip(batch, self._encode(batch), strict=True):
            if isinstance(vector, Exception):
                failed += self._fail(waiting, vector)
            elif waiting.request.id in self._open:  # another prompt of the request may have failed
                vector_bytes = vector.numpy().astype("<f4").tobytes()
                self._open[waiting.request.id].vectors[waiting.index] = vector_bytes
        logger.info(
            "Embed batch. #seq: %d, #token: %d, #queue-seq: %d",
            *(len(batch), num_tokens, len(self._queue)),
        )
        seconds = self._deferrable_budget.end(begun, len(batch), len(batch) * longest)
        touched = dict.fromkeys(waiting.request.id for waiting in batch)
        ends = [event for request_id in touched if (event := self._finish(request_id, seconds)) is not None]
        return late + failed + ends

    def stats(self) -> EngineStats:
        """Return the statistics; `num_waiting` counts prompts. No prompt runs between two steps."""
        return EngineStats(
            num_running=0,
            num_waiting=len(self._queue),
            num_used_tokens=0,
            num_cached_tokens=0,
            num_total_tokens=0,
            num_deferrable_waiting=self._queue.num_deferrable,
            component_uses=self._ledger.uses(),
        )

    def control(self, command: EngineCommand) -> Answer:
        """Answer GetPolicy with first come, first served; raise RequestError for any other command."""
        if isinstance(command, GetPolicy):
            return PolicyInfo(self.info.policy)
        raise RequestError(
            f"this engine {'embeds' if self.info.task == 'embed' else 'classifies'}: it has no prefix cache, takes prompts as they come, and traces nothing",
            code="unsupported_operation",
        )

    def _finish(self, request_id: str, seconds: float) -> TokenEvent | None:
        """Add a batch's compute time to a request. If all vectors are computed, end the request and return
        its final event.

        The times that live requests take limit the batches of deferrable requests.
        """
        if (made := self._open.get(request_id)) is None:  # it has failed
            return None
        made.seconds += seconds
        count = len(made.request.prompts)
        is_whole = len(made.vectors) == count
        if not made.request.deferrable:
            self._deferrable_budget.note_live([made.seconds] if is_whole else [])
        if not is_whole:
            return None
        del self._open[request_id]
        self._leave(request_id, num_served=1)
        vectors = b"".join(made.vectors[index] for index in range(count))
        return TokenEvent(request_id, [], FinishReason.STOP, vectors=vectors)

    def _encode(self, batch: Sequence[Waiting]) -> list[torch.Tensor | Exception]:
        """Return the vector of each prompt of a batch, or the error that ends its request.

        If a batch fails, its prompts are computed one by one, as one prompt may be the cause.
        """
        try:
            with on_device(self._device):
                return [
                    *self._encoder.encode(
                        [waiting.prompt for waiting in batch],
                        [waiting.request.dimensions for waiting in batch],
                        [waiting.types for waiting in batch],
                    )
                ]
        except BaseException as caught:  # noqa: BLE001 - perhaps of a plugin; other requests continue
            error = contained(caught)
            self._faults.check_device(error)
            if len(batch) == 1:
                return [self._faults.blame(error)]
        return [vector for waiting in batch for vector in self._encode([waiting])]

    def _fail(self, waiting: Waiting, error: Exception) -> list[TokenEvent]:
        """End the request of a prompt that failed; return its final event, if it has not ended before."""
        request_id = waiting.request.id
        if request_id not in self._open:
            return []
        self.abort(request_id)
        return [TokenEvent.failed(request_id, error)]

    def _end_late(self) -> list[TokenEvent]:
        """End the requests whose timeout has passed; return their final events."""
        ends = []
        for request_id, timeout in self._deadlines.take_due(self._clock()).items():
            made = self._open[request_id]
            how_far = f"after {len(made.vectors)} of {len(made.request.prompts)} prompts"
            self.abort(request_id)
            ends.append(TokenEvent.failed(request_id, deadline_error(timeout, how_far)))
        return ends

    def _leave(self, request_id: str, num_served: int = 0) -> None:
        now = self._clock()
        if self._gate.admit(request_id):
            self._gate.rate.note(num_served, self._gate.num_waiting, now)
        self._gate.leave(request_id, now)
        self._deadlines.forget(request_id)

    def _check(self, request: EmbedRequest) -> None:
        if request.id in self._open:
            raise RequestError(f"a request with id {request.id!r} runs already; use another id", param="id")
        if not all(request.prompts) or not request.prompts:
            raise RequestError("a prompt is empty; each needs at least one token", param="input")
        size, limit, vocab_size = self.info.embedding_size, self.info.max_model_len, self.info.vocab_size
        if request.dimensions is not None and not 1 <= request.dimensions <= size:
            raise RequestError(
                f"dimensions is {request.dimensions}; this model has {size}: ask for 1 to {size}",
                param="dimensions",
            )
        _check_types(request)
        if (longest := max(map(len, request.prompts))) > limit:
            raise ContextLengthError(
                f"a prompt has {longest} tokens; the longest sequence is {limit}: send a shorter prompt",
                param="input",
            )
        for wrong in (min(map(min, request.prompts)), max(map(max, request.prompts))):
            if not 0 <= wrong < vocab_size:
                raise RequestError(
                    f"input has token id {wrong}; they go from 0 to {vocab_size - 1}", param="input"
                )


def _check_types(request: EmbedRequest) -> None:
    """Raise RequestError unless there are no token types, or there is 0 or 1 for each token."""
    if not request.type_ids:
        return
    if list(map(len, request.type_ids)) != list(map(len, request.prompts)):
        raise RequestError("type_ids must have a type for each token of each prompt", param="type_ids")
    if any(not 0 <= kind <= 1 for kinds in request.type_ids for kind in kinds):
        raise RequestError(
            "type_ids has a type other than 0 and 1; each must be one of them", param="type_ids"
        )


def _check_settings(config: EngineConfig) -> None:
    if config.place.model:
        return  # the settings are for all models of the server, and have a meaning for others
    defaults = {entry.name: entry.default for entry in msgspec.structs.fields(EngineConfig)}
    for name, flag in MEANINGLESS.items():
        value = getattr(config, name)
        if value != defaults[name]:
            raise ConfigError(
                f"{flag} is {value!r}; it has no meaning for a model that embeds or classifies: leave it out"
            )
    if own := [key for key in config.options if key.partition(".")[0] in UNUSED_KINDS]:
        raise ConfigError(f"option {own[0]}: a model that embeds or classifies uses no such component")


def _summary(encoder: Encoder | Classifier, info: EngineInfo) -> str:
    if isinstance(encoder, Classifier):
        return f"Classifying. labels={len(encoder.labels)}, activation={encoder.activation}"
    pooling = encoder.pooling
    return f"Embedding. pooling={pooling.mode}, normalized={pooling.normalize}, size={info.embedding_size}"


def _describe(
    config: EngineConfig, encoder: Encoder | Classifier, device: torch.device, batch_size: int
) -> EngineInfo:
    info = _common(config, encoder, device, batch_size)
    if isinstance(encoder, Classifier):
        return msgspec.structs.replace(
            info, task="classify", labels=encoder.labels, activation=encoder.activation
        )
    module = encoder.module
    size = module.config.get_text_config().hidden_size
    matryoshka = load_matryoshka(config.model, module.config, size)
    return msgspec.structs.replace(
        info,
        task="embed",
        embedding_size=size,
        is_matryoshka=matryoshka is not None,
        matryoshka_dimensions=matryoshka or (),
        prompt_names=prompt_names(config.model),
    )


def _common(
    config: EngineConfig, encoder: Encoder | Classifier, device: torch.device, batch_size: int
) -> EngineInfo:
    """Return the part of the description that does not depend on the task."""
    module = encoder.module
    text_config = module.config.get_text_config()
    return EngineInfo(
        model=config.model,
        architecture=type(module).__name__,
        dtype=str(module.dtype).removeprefix("torch."),
        device=str(device),
        vocab_size=text_config.vocab_size,
        max_model_len=encoder.max_length,
        max_total_tokens=0,
        max_running_requests=batch_size,
        attention=str(text_config._attn_implementation),
        policy="fcfs",
        quantization=config.quantization,
    )
