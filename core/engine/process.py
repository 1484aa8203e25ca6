"""The engine process: the loop around `Engine`, socket in, socket out.

Started by `llmfw.core.client.process`. Reads its settings from stdin, which then stays open: its end tells that the
parent is gone, whatever ended it. This module knows messages and clients; it does not know what a step does.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import zmq

from .. import garbage
from ..client.intake import take_in
from ..client.wire import (
    Endpoint,
    Hello,
    Launch,
    decode_from_client,
    encode,
    failure_of,
    open_socket,
    read_launch,
)
from ..config import EngineConfig
from ..errors import LLMFWError
from ..log import setup_logging
from ..request import Abort, EmbedRequest, EngineFailed, FromEngine, Request, StepOutput, TokenEvent
from .alarm import Alarm
from .stream_interval import StreamInterval

if TYPE_CHECKING:
    from .any_engine import AnyEngine

logger = logging.getLogger("llmfw.core.engine.process")

HELLO_TIMEOUT_MS = 5000
FAREWELL_MS = 1000  # how long a last message may take to leave
ORPHAN_GRACE_S = 3.0
MAX_SLEEP_MS = 60_000


class EngineServer:
    """Serves one engine to any number of clients, each known by its socket's identity.

    Args:
        sock: a bound ROUTER socket.
        engine: used by the thread that calls `run`.
        stream_interval: tokens in one event, where a request does not say.
    """

    def __init__(self, sock: zmq.Socket[bytes], engine: AnyEngine, stream_interval: int = 1) -> None:
        self._socket = sock
        self._engine = engine
        self._interval = StreamInterval(stream_interval)
        self._clients: set[bytes] = set()
        self._owners: dict[str, bytes] = {}
        self._alarm = Alarm()
        self._poller = zmq.Poller()
        self._poller.register(sock, zmq.POLLIN)
        self._poller.register(self._alarm, zmq.POLLIN)
        engine.call_when_ready(self._alarm.ring)

    def run(self) -> None:
        """Serve until an exception ends the process. Sleeps while there is no work."""
        try:
            while True:
                if not self._engine.has_work:
                    self._poller.poll(_milliseconds(self._engine.sleep_s))
                    self._alarm.stop()
                self._take_all_in()
                if self._engine.has_work:
                    self._send_events(self._interval.pass_on(self._engine.step()))
        except Exception as error:
            logger.exception("the engine failed; it ends, and with it every open request")
            self._say_to_all(failure_of(error))
            raise SystemExit(1) from error

    def _take_all_in(self) -> None:
        while True:
            try:
                client, payload = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._handle(client, payload)

    def _handle(self, client: bytes, payload: bytes) -> None:
        message = decode_from_client(payload)
        if isinstance(message, Hello):
            self._clients.add(client)
            self._send(client, self._engine.info)
            return
        if isinstance(message, Request | EmbedRequest):
            self._owners[message.id] = client
        elif isinstance(message, Abort):
            self._interval.forget(message.ids)
        answer = take_in(self._engine, message)
        if isinstance(answer, TokenEvent):
            self._send_events([answer])
        elif isinstance(message, Request | EmbedRequest):
            self._interval.begin(message)
        elif answer is not None:
            self._send(client, answer)

    def _send_events(self, events: list[TokenEvent]) -> None:
        """Send each client its own events, in one message."""
        by_client: dict[bytes, list[TokenEvent]] = {}
        for event in events:
            ended = event.finish_reason is not None
            owner = self._owners.pop(event.id, None) if ended else self._owners.get(event.id)
            if owner is not None:
                by_client.setdefault(owner, []).append(event)
        for client, own in by_client.items():
            self._send(client, StepOutput(own))

    def _say_to_all(self, message: EngineFailed) -> None:
        self._socket.linger = FAREWELL_MS
        for client in self._clients:
            self._send(client, message)

    def _send(self, client: bytes, message: FromEngine) -> None:
        self._socket.send_multipart((client, encode(message)), zmq.NOBLOCK)


def _milliseconds(seconds: float | None) -> int | None:
    """Return for how long ZeroMQ is to poll; None: until something comes."""
    return None if seconds is None else min(math.ceil(1000 * seconds), MAX_SLEEP_MS)


class _End:
    """Ends the process when it is told to by SIGTERM.

    The signal raises SystemExit wherever the process is. What imports a module may swallow that (torch tries to import
    numpy from C++, and goes on without), and fail later for want of what was not imported. So it is remembered.
    """

    def __init__(self) -> None:
        self._asked = False

    def take_over_signals(self) -> None:
        """Leave Ctrl-C to the parent, and end cleanly on SIGTERM."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def if_asked(self) -> None:
        """Raise SystemExit if the signal came and its exception went no further."""
        if self._asked:
            raise SystemExit(0)

    def _on_sigterm(self, *_: object) -> None:
        self._asked = True
        raise SystemExit(0)


def main(build: Callable[[EngineConfig], AnyEngine] | None = None) -> None:
    """Run an engine process to its end.

    Args:
        build: makes the engine; None: the real one, with the installed plugins.
    """
    end = _End()
    end.take_over_signals()
    try:
        _serve(read_launch(sys.stdin.buffer), build or _build, end)
    finally:
        # What runs at the interpreter's end must not be interrupted by an exception.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _serve(launch: Launch, build: Callable[[EngineConfig], AnyEngine], end: _End) -> None:
    _watch_parent(launch.endpoint)
    setup_logging(launch.config.log_level)
    with zmq.Context() as context, open_socket(context, zmq.ROUTER) as sock:
        sock.bind(launch.endpoint.address)
        try:
            engine = build(launch.config)
        except Exception as error:
            end.if_asked()
            if not isinstance(error, LLMFWError):
                logger.exception("the engine could not be built")
            _refuse(sock, failure_of(error))
        end.if_asked()
        garbage.settle()
        EngineServer(sock, engine, launch.config.stream_interval).run()


def _build(config: EngineConfig) -> AnyEngine:
    # OpenMP's threads spin while they wait for each other: 300,000 rounds, milliseconds, unless told otherwise. Where
    # they share the cores with the API process, or a laptop's other work, steps then take ten times as long; without
    # any spinning they take half as long again. Read by GNU's OpenMP when torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # Imported here: torch takes seconds, and the parent's end must be noticed from the first moment on.
    with garbage.importing():
        from ..imports.hf import import_modeling

        import_modeling()
        import torch

        from ..plugins import load_plugins
        from .build import build_engine

    engine = build_engine(config, load_plugins(config.disabled_plugins).registry)
    if (
        engine.has_own_threads
    ):  # what is left to torch is sooner done by one; more would wait for the others' cores
        torch.set_num_threads(1)
    return engine


def _refuse(sock: zmq.Socket[bytes], failed: EngineFailed) -> NoReturn:
    """Answer the parent's Hello with the failure, and end."""
    sock.linger = FAREWELL_MS
    if sock.poll(HELLO_TIMEOUT_MS):
        client, _ = sock.recv_multipart()
        sock.send_multipart((client, encode(failed)))
    raise SystemExit(1)


def _watch_parent(endpoint: Endpoint) -> None:
    """End this process when stdin ends, whatever the main thread is busy with."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        endpoint.remove()
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGTERM)
        time.sleep(ORPHAN_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="llmfw-parent-watch", daemon=True).start()


if __name__ == "__main__":
    main()
