"""The engine that generates: accepts requests, and returns token events, one step at a time.

`Engine` connects the objects that do the work: scheduler, executor, grammars and so on. `loops` defines the
order in which the halves of consecutive steps run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
import torch

from llmfw.core.base.control import Answer, EngineCommand
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import ComponentFailedError, RequestError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.base.seeds import derive_seed
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.interfaces.grammar import Grammar
from llmfw.core.model.device.devices import on_device
from llmfw.core.plugin.calls import ComponentLedger
from llmfw.core.plugin.containment import contained
from llmfw.core.schedule.cache.cache_journal import CacheJournal
from llmfw.core.schedule.constraint import Constraint, constraint_of
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.step.processors.isolated_processor import IsolatedProcessor
from llmfw.core.step.processors.processor_rows import asked_processors

from ..admission.admission_control import AdmissionControl
from ..admission.request_check import check_request
from ..admission.uncounted_token import end_at_uncounted
from .adapters import EngineAdapters
from .grammars import Grammars
from .images import EngineImages
from .kv_prefaulter import KVPrefaulter
from .loops import Loop, LoopContext
from .planning import Planning
from .step_meter import COMMIT, PLAN

logger = logging.getLogger(__name__)


class Engine:
    """Generates tokens for requests. Not thread-safe: only one thread may call its methods.

    Args:
        info: description of the engine.
        context: objects that the loop uses.
        loop: runs the scheduler's plans.
        planning: the scheduler, and the other objects that plan steps.
        grammars: compiles the grammars of requests.
        admission_control: tracks open requests, from their arrival to their end.
        ledger: record of the calls of components.
        kv_prefaulter: allocates memory of keys and values in advance.
        adapters: the adapters that requests may ask for.
        processors: logits processors that requests may ask for.
        images: prepares requests with images; None: they are refused.
        random_seed: seed from which the seeds of requests without one are derived.
    """

    def __init__(
        self,
        info: EngineInfo,
        context: LoopContext,
        loop: Loop,
        planning: Planning,
        grammars: Grammars,
        admission_control: AdmissionControl,
        ledger: ComponentLedger,
        kv_prefaulter: KVPrefaulter,
        adapters: EngineAdapters,
        processors: Sequence[IsolatedProcessor] = (),
        images: EngineImages | None = None,
        *,
        random_seed: int,
    ) -> None:
        self.info = info
        self._on_device = on_device(torch.device(info.device))
        self._scheduler = planning.scheduler
        self._executor = context.executor
        self._deferrable_budget = context.deferrable_budget
        self._piece_budget = context.piece_budget
        self._meter = context.meter
        self._loop = loop
        self._pages = planning.pages
        self._journal = planning.journal
        self._grammars = grammars
        self._keeper = planning.keeper
        self._administration = planning.administration
        self._admission_control = admission_control
        self._ledger = ledger
        self._kv_prefaulter = kv_prefaulter
        self._adapters = adapters
        self._speculation = planning.speculation
        self._processors = processors
        self._images = images or EngineImages(None)
        self._random_seed = random_seed
        self._num_added = 0
        self._num_generated = 0
        self._report_step: Callable[[StepSizes], None] = lambda sizes: None

    @property
    def cache_journal(self) -> CacheJournal | None:
        """Changes of the prefix cache; None if they are not recorded."""
        return self._journal

    @property
    def has_own_threads(self) -> bool:
        """Whether the model computes nearly all of a step on threads other than torch's."""
        return self._executor.has_own_threads

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do. A request whose grammar is being compiled does not count."""
        has_steps = self._scheduler.has_work or self._loop.has_launched or self._grammars.has_ready
        return has_steps or self._admission_control.sleep_s == 0

    @property
    def sleep_s(self) -> float | None:
        """Seconds until there is work without a new message; None: there is none until a message comes."""
        sleeps = self._admission_control.sleep_s, self._keeper.sleep_s
        return min((each for each in sleeps if each is not None), default=None)

    @property
    def has_background_work(self) -> bool:
        """Whether `do_background_work` has anything to do."""
        return self._kv_prefaulter.is_due or self._keeper.sleep_s == 0

    def do_background_work(self) -> None:
        """Do a few milliseconds of background work; called while no request waits."""
        self._keeper.tick()
        if self._kv_prefaulter.is_due:
            self._kv_prefaulter.bring()

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        """Register a function to call, in any thread, when a compiled or failed grammar makes `has_work`
        true."""
        self._grammars.call_when_ready(wake)

    def call_before_steps(self, report: Callable[[StepSizes], None]) -> None:
        """Register a function to call with each step's sizes, before the step is computed."""
        self._report_step = report

    def add(self, request: Request) -> None:
        """Accept a request, and set its max_tokens and seed if they are None.

        Raises:
            RequestError: the request cannot be served.
            OverloadedError: the queue is full.
            ComponentFailedError: a logits processor failed.
        """
        if request.id in self._scheduler or request.id in self._grammars:
            raise RequestError(f"a request with id {request.id!r} runs already; use another id", param="id")
        request = end_at_uncounted(request, self.info.uncounted_token)
        check_request(request, self.info)
        request = self._images.placed(request)
        request = self._adapters.salted(request)
        if request.grammar is not None:
            self._grammars.check()
        self._admission_control.check(request)
        sampling = request.sampling
        room = self.info.max_model_len - len(request.prompt)
        if sampling.max_tokens is None:
            sampling = msgspec.structs.replace(sampling, max_tokens=room)
        if sampling.seed is None:
            sampling = msgspec.structs.replace(sampling, seed=derive_seed(self._random_seed, self._num_added))
        self._num_added += 1
        request = msgspec.structs.replace(request, sampling=sampling)
        if request.adapter:
            self._adapters.enter(request)
        try:
            self._start_or_compile(request)
        except BaseException:
            self._adapters.leave(request.id)
            raise
        self._admission_control.enter(request)

    def _start_or_compile(self, request: Request) -> None:
        """Start a request, or wait for its grammar."""
        if request.grammar is None:
            self._start(request, constraint_of(request, None))
        elif (grammar := self._grammars.get(request)) is not None:
            self._start(request, self._grammars.constraint(request, grammar))

    def abort(self, request_id: str) -> None:
        """End a request without an event, and free its pages. Unknown ids are ignored."""
        self._grammars.abort(request_id)
        self._scheduler.abort(request_id)
        self._admission_control.leave(request_id)
        self._adapters.leave(request_id)

    def control(self, command: EngineCommand) -> Answer:
        """Carry out an administrator's command.

        Raises:
            RequestError: the command cannot be carried out; nothing has changed.
        """
        return self._administration.answer(command)

    def step(self) -> list[TokenEvent]:
        """Run one step; return its events."""
        with torch.inference_mode(), self._on_device:
            return self._step()

    def _step(self) -> list[TokenEvent]:
        self._meter.begin()
        if self._adapters.has_room:
            self._adapters.tick()
        events = self._end_late() + self._take_compiled()
        begun = self._deferrable_budget.begin()
        plan = self._schedule()
        if self._adapters.has_room:
            self._adapters.copy()
        self._admission_control.note_admitted(self._scheduler)
        self._report_step(self._sizes_of(plan))
        self._meter.end(PLAN)
        events += self._loop.run(plan, begun)
        self._num_generated += sum(len(event.token_ids) for event in events)
        self._admission_control.note_events(events)
        if self._adapters.has_room:
            self._adapters.note_events(events)
        if not self.has_work:
            self._pages.check_nothing_leaked()
        events += self._admission_control.tell_waits(self._scheduler)
        self._meter.end(COMMIT)
        return events

    def _sizes_of(self, plan: BatchPlan) -> StepSizes:
        """Return the sizes of a step, and the numbers of waiting and running requests at its start."""
        return StepSizes(
            num_tokens=plan.num_tokens,
            num_sequences=len(plan.sequences),
            num_prefilling=len(plan.prefills),
            num_drafted=len(plan.drafts),
            longest=int(plan.step.kv_lens.max(initial=0)),
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_used_tokens=self._pages.num_used_tokens,
        )

    def _end_late(self) -> list[TokenEvent]:
        """End the requests whose timeout has passed, whatever their state; return their final events."""
        events = self._admission_control.take_late(self._scheduler)
        for event in events:
            self.abort(event.id)
        return events

    def _schedule(self) -> BatchPlan:
        """Plan a step. If nothing can run because pins hold the pages, remove the pins."""
        self._keeper.tick()
        piece = self._piece_budget.largest(self._scheduler.live.num_waiting_unscored)
        score_cost = self._piece_budget.score_cost
        limits = self._deferrable_budget.limits() if self._scheduler.deferrable.is_open else None
        while True:
            plan = self._scheduler.schedule(limits, piece=piece, score_cost=score_cost)
            if plan.sequences or self._loop.has_launched or not self._scheduler.has_work:
                return plan
            if self._adapters.finish_copies():
                continue
            assert self._keeper.give_up(), "nothing runs, and nothing can"

    def _take_compiled(self) -> list[TokenEvent]:
        """Start requests whose grammars are ready; return the final events of requests whose grammars
        failed."""
        events = []
        for request, grammar in self._grammars.take_ready():
            error = self._start_or_error(request, grammar)
            if error is not None:
                events.append(TokenEvent.failed(request.id, error))
                if not isinstance(error, RequestError | ComponentFailedError):
                    logger.error("request %s has no grammar", request.id, exc_info=error)
        return events

    def _start_or_error(self, request: Request, grammar: Grammar | Exception) -> Exception | None:
        if isinstance(grammar, Exception):
            return grammar
        try:
            self._start(request, self._grammars.constraint(request, grammar))
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; other requests continue
            return contained(error)
        return None

    def _start(self, request: Request, constraint: Constraint | None) -> None:
        adapter = self._adapters.number_of(request.id) if request.adapter else 0
        self._scheduler.add(request, constraint, asked_processors(self._processors, request), adapter)

    def stats(self) -> EngineStats:
        """Return the statistics of the engine."""
        images = self._pages.images
        return EngineStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting + self._grammars.num_waiting,
            num_used_tokens=self._pages.num_used_tokens,
            num_cached_tokens=self._pages.cache.num_pages * self._pages.page_size,
            num_total_tokens=self._pages.num_total_tokens,
            num_retractions=self._scheduler.num_retractions,
            num_generated_tokens=self._num_generated,
            num_deferrable_running=self._scheduler.deferrable.num_running,
            num_deferrable_waiting=self._scheduler.deferrable.num_waiting,
            num_drafted_tokens=self._speculation.num_drafted if self._speculation else 0,
            num_accepted_tokens=self._speculation.num_accepted if self._speculation else 0,
            num_prompt_tokens=self._scheduler.num_prompt_tokens,
            num_prompt_cached=self._scheduler.num_prompt_cached,
            num_drafted_output=self._scheduler.num_drafted_output,
            num_evicted_tokens=self._pages.cache.num_evicted,
            num_images_encoded=images.num_encoded if images else 0,
            num_images_found=images.num_found if images else 0,
            image_seconds=self._images.seconds,
            num_steps=self._meter.num_steps,
            step_seconds=self._meter.seconds,
            live_gaps=self._scheduler.gaps.live,
            deferrable_gaps=self._scheduler.gaps.deferrable,
            component_uses=self._ledger.uses(),
        )
