"""The main module of the engine process: runs an engine, and exchanges messages with its clients.

`llmfw.core.client.process` starts this process. The process reads its settings from stdin, which then stays
open: the end of stdin means that the parent has ended, for whatever reason. This module handles messages and
clients, not the contents of steps.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.engine_info import EngineStats, FromEngine
from llmfw.core.base.errors import LLMFWError, UnreadableRequestError
from llmfw.core.base.log import LogTarget, setup_logging
from llmfw.core.base.request import Abort, EmbedRequest, EventBatch, ReportQuery, Request, TokenEvent
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.imports import garbage
from llmfw.core.ipc.child import settle
from llmfw.core.ipc.flight_recorder import FlightRecorder
from llmfw.core.ipc.request_decoder import RequestDecoder
from llmfw.core.ipc.wire import Launch, encode, failure_of, read_launch
from llmfw.core.plugin.containment import ProcessEnd

from ..generation.stream_interval import StreamInterval
from ..ranks.rank_processes import RankProcesses
from .connections import Client, Connections
from .heartbeat import Heartbeat
from .intake import take_in
from .reporter import EngineReporter
from .waker import Waker

if TYPE_CHECKING:
    from .any_engine import AnyEngine

logger = logging.getLogger("llmfw.core.engine.process.process")

FAREWELL_S = 1.0  # maximum time to send a last message
ORPHAN_GRACE_S = 3.0  # time to end after the parent's end, before the process is forced to exit
MAX_SLEEP_S = 60.0


class EngineServer:
    """Serves one engine to any number of clients.

    Args:
        engine: engine; only the thread that calls `run` uses it.
        connections: connections to the clients.
        alarm: object that wakes the thread that polls `connections`.
        stream_interval: number of tokens in one event, unless a request sets its own.
        heartbeat: reports progress to the client; None: progress is not reported.
        recorder: records the steps; None: they are not recorded.
        reporter: makes reports for a router; None: the engine is the only one of its server.
    """

    def __init__(
        self,
        engine: AnyEngine,
        connections: Connections,
        alarm: Waker,
        stream_interval: int = 1,
        heartbeat: Heartbeat | None = None,
        recorder: FlightRecorder | None = None,
        reporter: EngineReporter | None = None,
    ) -> None:
        self._engine = engine
        self._connections = connections
        self._heartbeat = heartbeat or Heartbeat()
        self._interval = StreamInterval(stream_interval)
        self._decoder = RequestDecoder()
        self._owners: dict[str, Client] = {}
        self._idle_seconds = 0.0
        engine.call_when_ready(alarm.ring)
        self._recorder = recorder
        self._reporter = reporter
        self._sizes = StepSizes(0)
        engine.call_before_steps(self._note_step)

    def run(self) -> None:
        """Serve requests until an exception ends the process. Sleeps while there is no work."""
        try:
            _say_to_all(self._connections, self._engine.info)
            while True:
                for client, payloads in self._poll():
                    for payload in payloads:
                        self._handle(client, payload)
                    if client.is_gone:
                        self._forget(client)
                if self._engine.has_work:
                    self._step()
                elif self._engine.has_background_work:
                    self._engine.do_background_work()
                if self._reporter is not None and (report := self._reporter.take()) is not None:
                    _say_to_all(self._connections, report)
        except Exception as error:
            logger.exception("the engine failed; it ends, and with it every open request")
            _say_to_all(self._connections, failure_of(error), last=True)
            raise SystemExit(1) from error

    def _step(self) -> None:
        """Run a step, and send the changes of the prefix cache, then the step's events."""
        begun = time.perf_counter()
        events = self._engine.step()
        if self._reporter is not None:
            self._reporter.meter.note(self._sizes, time.perf_counter() - begun)
            if (report := self._reporter.take()) is not None:
                _say_to_all(self._connections, report)
        self._send_events(self._interval.pass_on(events))

    def _note_step(self, sizes: StepSizes) -> None:
        """Report that a step starts, and record its sizes."""
        self._heartbeat.step(sizes.num_tokens)
        self._sizes = sizes
        if self._recorder is not None:
            self._recorder.note_step(sizes)

    def _poll(self) -> list[tuple[Client, list[bytes]]]:
        """Return the payloads that clients have sent; if there is no other work, wait for them."""
        idle_s = self._idle_s()
        begun = time.perf_counter()
        if idle_s != 0:
            self._heartbeat.idle()
        found = self._connections.poll(idle_s)
        self._heartbeat.busy()
        if idle_s != 0:
            self._idle_seconds += time.perf_counter() - begun
        return found

    def _idle_s(self) -> float | None:
        """Return the number of seconds to wait for a message; 0 if there is other work; None: no limit."""
        if self._engine.has_work or self._engine.has_background_work:
            return 0
        sleep_s = self._engine.sleep_s
        return None if sleep_s is None else min(sleep_s, MAX_SLEEP_S)

    def _handle(self, client: Client, payload: bytes) -> None:
        try:
            message = self._decoder.decode(payload)
        except (msgspec.MsgspecError, LLMFWError) as error:  # a plugin's route may send anything
            self._refuse(client, payload, error)
            return
        if isinstance(message, Request | EmbedRequest):
            self._owners[message.id] = client
        elif isinstance(message, Abort):
            self._interval.forget(message.ids)
        if isinstance(message, ReportQuery):
            if self._reporter is not None:
                self._send(client, self._reporter.take_whole())
            return
        answer = take_in(self._engine, message)
        if isinstance(answer, TokenEvent):
            self._send_events([answer])
        elif isinstance(message, Request | EmbedRequest):
            self._interval.begin(message)
        elif answer is not None:
            if isinstance(answer, EngineStats):
                answer.idle_seconds = self._idle_seconds
            self._send(client, answer)

    def _refuse(self, client: Client, payload: bytes, error: Exception) -> None:
        """End the request of a message that cannot be decoded."""
        logger.error("a message to the engine is refused: %s: %s", type(error).__name__, error)
        message = msgspec.msgpack.decode(payload)
        request_id = message.get("id") if isinstance(message, dict) else None
        if isinstance(request_id, str):
            if not isinstance(error, LLMFWError):
                error = UnreadableRequestError(f"the engine cannot read request {request_id!r}: {error}")
            self._send(client, EventBatch([TokenEvent.failed(request_id, error)]))

    def _forget(self, client: Client) -> None:
        """End the requests of a client that has disconnected."""
        ids = [request_id for request_id, owner in self._owners.items() if owner is client]
        self._interval.forget(ids)
        for request_id in ids:
            self._engine.abort(request_id)
            del self._owners[request_id]

    def _send_events(self, events: list[TokenEvent]) -> None:
        """Send each client its own events, in one message."""
        by_client: dict[Client, list[TokenEvent]] = {}
        for event in events:
            ended = event.finish_reason is not None
            owner = self._owners.pop(event.id, None) if ended else self._owners.get(event.id)
            if owner is not None:
                by_client.setdefault(owner, []).append(event)
        for client, own in by_client.items():
            self._send(client, EventBatch(own))

    def _send(self, client: Client, message: FromEngine) -> None:
        self._connections.send(client, encode(message))


def _say_to_all(connections: Connections, message: FromEngine, *, last: bool = False) -> None:
    """Send a message to each client.

    Args:
        last: wait until the message is sent, because the process ends afterwards.
    """
    payload = encode(message)
    for client in connections.clients:
        connections.send(client, payload)
        if last:
            client.finish(FAREWELL_S)


class _End:
    """Ends the process on SIGTERM.

    Once the engine is up, the signal raises ProcessEnd. Before that, the signal ends the process at once. An
    exception would reach C++ code that imports modules or loads weights. Such code swallows the exception and
    fails later, or aborts the process.
    """

    def __init__(self) -> None:
        self._is_up = False

    def take_over_sigterm(self) -> None:
        """Install the handler for SIGTERM, which ends the process cleanly."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def engine_is_up(self) -> None:
        """Make SIGTERM raise an exception from now on, so that running code can clean up."""
        self._is_up = True

    def _on_sigterm(self, *_: object) -> None:
        if not self._is_up:
            os._exit(0)
        raise ProcessEnd(0)


def main(build: Callable[[EngineConfig], AnyEngine] | None = None) -> None:
    """Run an engine process to its end.

    Args:
        build: function that builds the engine; None: build the real engine, with the installed plugins.
    """
    end = _End()
    end.take_over_sigterm()
    settle()
    try:
        _serve(read_launch(sys.stdin.buffer), build or _build, end)
    finally:
        # An exception must not interrupt the code that runs at the interpreter's exit.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _serve(launch: Launch, build: Callable[[EngineConfig], AnyEngine], end: _End) -> None:
    _watch_parent()
    setup_logging(launch.config.log_level, _log_target(launch.config))
    recorder = None if launch.flight is None else FlightRecorder(launch.flight)
    if recorder is not None:
        recorder.take_log()
        recorder.take_stacks()
    heartbeat = Heartbeat(launch.heartbeat)
    heartbeat.start_beating()
    alarm = Waker()
    connections = Connections(launch.sockets, alarm)
    try:
        engine = build(launch.config)
    except Exception as error:
        if not isinstance(error, LLMFWError):
            logger.exception("the engine could not be built")
        _say_to_all(connections, failure_of(error), last=True)
        raise SystemExit(1) from error
    garbage.settle()
    end.engine_is_up()
    reporter = EngineReporter(engine.cache_journal) if launch.config.place.is_replica else None
    interval = launch.config.stream_interval
    EngineServer(engine, connections, alarm, interval, heartbeat, recorder, reporter).run()


def _log_target(config: EngineConfig) -> LogTarget:
    """Return the log target of this process. If there are several engines, lines have the engine's number or model."""
    return LogTarget(config.log_format, config.log_file, engine=config.place.label)


def import_engine() -> None:
    """Import torch and what all models share, with the settings that suit a process of an engine."""
    # OpenMP's threads spin while they wait for each other, by default for 300,000 rounds (milliseconds). If they share
    # the cores with other work, such as the API process, steps then take ten times as long. Without spinning, steps take
    # 1.5 times as long. GNU OpenMP reads the variable when torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    from llmfw.core.imports.hf import import_modeling

    import_modeling()


def _build(config: EngineConfig) -> AnyEngine:
    ranks = RankProcesses.of(config)  # before the imports, which the ranks then do at the same time
    # Imported here because torch takes seconds, and this process must notice its parent's end from the start.
    with garbage.importing():
        import_engine()
        import torch

        from llmfw.core.model.device.devices import choose_device, use_device
        from llmfw.core.plugin.plugins import load_plugins

        from .build import build_engine

    # For all work of this thread, not only for steps.
    use_device(choose_device(config.device, config.place))
    engine = build_engine(config, load_plugins(config.disabled_plugins).registry, ranks)
    if (
        engine.has_own_threads
    ):  # one thread does the remaining torch work faster; several would wait for busy cores
        torch.set_num_threads(1)
    return engine


def _watch_parent() -> None:
    """Start a thread that ends this process when stdin ends, whatever the main thread does."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGTERM)
        time.sleep(ORPHAN_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="llmfw-parent-watch", daemon=True).start()


if __name__ == "__main__":
    main()
