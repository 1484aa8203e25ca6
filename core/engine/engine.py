"""The engine: requests in, token events out, one step at a time.

`Engine` owns the parts and the order in which they are used; each part knows only what it is given. There are two
orders, made of the same pieces:

    plain        schedule n,  launch n,  wait for n,  commit n
    overlapped   schedule n+1,  launch n+1,  wait for n,  commit n

Overlapped, the host's work for one step runs while the device works on another. What a request generates does not
depend on which of the two runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import torch

from ..attention import AttentionBackend
from ..config import EngineConfig
from ..errors import ContextLengthError, PartError, RequestError
from ..policy import SchedulePolicy
from ..registry import Registry
from ..request import EngineInfo, EngineStats, Request, TokenEvent
from ..weight_version import weight_version
from .admission import NewTokenRatio
from .capacity import Capacity, decide_capacity
from .devices import choose_device, gigabytes
from .kv_pool import KVPool
from .kv_storage import KVStorage
from .model_runner import LaunchedStep, ModelRunner
from .models import LoadedModel, load_model
from .plan import BatchPlan
from .prefix_cache import NoPrefixCache
from .radix_cache import RadixCache
from .randomness import derive_seed
from .sampler import Sampler
from .scheduler import Scheduler
from .sequence_pages import SequencePages
from .step_log import StepLog

logger = logging.getLogger(__name__)


class Engine:
    """Generates tokens for requests. Not thread-safe: one thread calls it.

    Args:
        info: what the engine is.
        scheduler, pages, runner: the parts, built for each other.
        step_log: is told of each launched step.
        overlap: run one step ahead.
        random_seed: from which the seeds of requests without one are drawn.
    """

    def __init__(
        self,
        info: EngineInfo,
        scheduler: Scheduler,
        pages: SequencePages,
        runner: ModelRunner,
        step_log: StepLog,
        *,
        overlap: bool,
        random_seed: int,
    ) -> None:
        self.info = info
        self._scheduler = scheduler
        self._pages = pages
        self._runner = runner
        self._step_log = step_log
        self._overlap = overlap
        self._random_seed = random_seed
        self._num_added = 0
        self._num_generated = 0
        self._launched: tuple[BatchPlan, LaunchedStep] | None = None

    @classmethod
    def build(cls, config: EngineConfig, registry: Registry) -> Engine:
        """Load the model and build the parts that the config names.

        Raises:
            ConfigError: something cannot be found, loaded or served; the message says what and why.
        """
        device = choose_device(config.device)
        policy_entry = registry.find("policy", config.policy)
        policy: SchedulePolicy = policy_entry.load()(policy_entry.build_options(config.options))
        model = load_model(config, device)
        capacity = decide_capacity(config, model, device)
        storage = KVStorage(model.layers, capacity.num_pages, config.page_size, model.dtype, device)
        _log_storage(storage, capacity)
        attention, backend = choose_attention(config, registry, model, device, storage)
        pool = KVPool(capacity.num_pages, config.page_size)
        cache = NoPrefixCache() if config.disable_radix_cache else RadixCache(pool)
        pages = SequencePages(pool, cache, capacity.max_running, capacity.max_model_len)
        scheduler = Scheduler(
            pages,
            policy,
            NewTokenRatio(config.schedule_conservativeness),
            max_running=capacity.max_running,
            prefill_budget=capacity.prefill_budget,
            chunked=capacity.chunked,
        )
        sampler = Sampler(capacity.max_running, model.vocab_size, device)
        return cls(
            _describe(config, model, capacity, device, attention),
            scheduler,
            pages,
            ModelRunner(model, backend, sampler, pages.table, config.page_size, device),
            StepLog(scheduler, pages, config.decode_log_interval),
            overlap=device.type == "cuda" if config.overlap is None else config.overlap,
            random_seed=config.random_seed,
        )

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self._scheduler.has_work or self._launched is not None

    def add(self, request: Request) -> None:
        """Accept a request. What it leaves open (max_tokens, seed) is decided here, once.

        Raises:
            RequestError: the request cannot be served.
        """
        self._check(request)
        sampling = request.sampling
        room = self.info.max_model_len - len(request.prompt)
        if sampling.max_tokens is None:
            sampling = msgspec.structs.replace(sampling, max_tokens=room)
        if sampling.seed is None:
            sampling = msgspec.structs.replace(sampling, seed=derive_seed(self._random_seed, self._num_added))
        self._num_added += 1
        self._scheduler.add(msgspec.structs.replace(request, sampling=sampling))

    def abort(self, request_id: str) -> None:
        """End a request without an event; its pages are free at once. An unknown id is fine."""
        self._scheduler.abort(request_id)

    def step(self) -> list[TokenEvent]:
        """Run one step; return what became known by it."""
        plan = self._scheduler.schedule()
        launched = None
        if plan.sequences:
            launched = (plan, self._runner.launch(plan))
            self._step_log.note(plan)
        if self._overlap:
            launched, self._launched = self._launched, launched
        if launched is None:
            assert self._launched is not None or not self._scheduler.has_work, "nothing runs, and nothing can"
            return []
        events = self._scheduler.commit(launched[0], launched[1].result())
        self._num_generated += len(events)
        if not self.has_work:
            self._pages.check_nothing_leaked()
        return events

    def stats(self) -> EngineStats:
        """Return the engine's figures."""
        return EngineStats(
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting),
            num_used_tokens=self._pages.num_used_tokens,
            num_cached_tokens=self._pages.cache.num_pages * self._pages.page_size,
            num_total_tokens=self._pages.num_total_tokens,
            num_retractions=self._scheduler.num_retractions,
            num_generated_tokens=self._num_generated,
        )

    def _check(self, request: Request) -> None:
        if request.id in self._scheduler:
            raise RequestError(f"a request with id {request.id!r} runs already", param="id")
        if not request.prompt:
            raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
        size, limit = len(request.prompt), self.info.max_model_len
        if size >= limit:
            raise ContextLengthError(
                f"the prompt has {size} tokens; the longest sequence is {limit}", param="prompt"
            )
        asked = request.sampling.max_tokens or 1
        if size + asked > limit:
            raise ContextLengthError(
                f"the prompt's {size} tokens and max_tokens {asked} make {size + asked}; the longest sequence is {limit}",
                param="max_tokens",
            )
        self._check_token_ids("prompt", request.prompt)
        self._check_token_ids("logit_bias", list(request.sampling.logit_bias))
        self._check_token_ids("stop_token_ids", request.sampling.stop_token_ids)

    def _check_token_ids(self, param: str, token_ids: Sequence[int]) -> None:
        vocab_size = self.info.vocab_size
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            wrong = next(token for token in token_ids if not 0 <= token < vocab_size)
            raise RequestError(
                f"{param} holds token id {wrong}; they go from 0 to {vocab_size - 1}", param=param
            )


def choose_attention(
    config: EngineConfig, registry: Registry, model: LoadedModel, device: torch.device, storage: KVStorage
) -> tuple[str, AttentionBackend]:
    """Return the attention backend, and its name: the one asked for, or the best that can serve the model.

    Raises:
        PartError: it cannot serve the model, or none can; with the reasons.
    """
    named = config.attention != "auto"
    entries = [registry.find("attention", config.attention)] if named else registry.entries("attention")
    reasons: list[str] = []
    for entry in entries:
        missing = entry.missing()
        reason = f"needs {', '.join(missing)}" if missing else None
        if reason is None:
            backend = entry.load()
            reason = backend.unsupported(model.layers, str(device), model.dtype)
            if reason is None:
                passed_over = f" ({'; '.join(reasons)})" if reasons else ""
                logger.info("Attention backend: %s%s", entry.name, passed_over)
                return entry.name, backend(model.layers, storage, entry.build_options(config.options))
        reasons.append(f"{entry.name}: {reason}")
    listed = "; ".join(reasons) or "no plugin brings one"
    raise PartError(f"no attention backend can serve {model.architecture} on {device}: {listed}")


def _describe(
    config: EngineConfig, model: LoadedModel, capacity: Capacity, device: torch.device, attention: str
) -> EngineInfo:
    info = EngineInfo(
        model=config.model,
        architecture=model.architecture,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(device),
        vocab_size=model.vocab_size,
        max_model_len=capacity.max_model_len,
        max_total_tokens=capacity.num_pages * config.page_size,
        max_running_requests=capacity.max_running,
        attention=attention,
        policy=config.policy,
        weight_version=weight_version(config.model, config.load_format),
    )
    logger.info(
        "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%d, "
        "context_len=%d",
        *(
            info.max_total_tokens,
            capacity.prefill_budget if capacity.chunked else -1,
            config.max_prefill_tokens,
        ),
        *(info.max_running_requests, info.max_model_len),
    )
    return info


def _log_storage(storage: KVStorage, capacity: Capacity) -> None:
    keys, values = storage.num_bytes
    logger.info(
        "KV Cache is allocated. #tokens: %d, K size: %s, V size: %s",
        *(capacity.num_pages * storage.page_size, gigabytes(keys), gigabytes(values)),
    )
