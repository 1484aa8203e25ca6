"""Supervisor of grammar compilation: builds the backend once, and forks the children that compile grammars.

The supervisor forwards clients' grammars without processing them. It exits when its socket to the API process
closes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import socket
import sys
from functools import partial
from time import monotonic

from llmfw.core.base.errors import LLMFWError, RequestError
from llmfw.core.ipc.child import settle
from llmfw.core.ipc.wire import Frames, framed
from llmfw.core.plugin.grammar_choice import build_grammar_backend
from llmfw.core.plugin.registry import Entry

from .child import Child
from .messages import Job, Launch, Ping, Ready, Unbuilt, Verdict, decode_launch, decode_request, encode
from .pool import Pool
from .trial import prove


class Supervisor:
    """Event loop of the process that supervises grammar compilation for one API process.

    Args:
        sock: socket connected to the API process.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = Frames()
        self._early: list[bytes] = []  # messages received together with the launch

    def run(self) -> None:
        """Serve until the API process closes the socket."""
        launch_frame = self._receive_launch()
        if launch_frame is None:
            return
        try:
            self._build(decode_launch(launch_frame))
        except LLMFWError as error:
            self._send(Unbuilt(str(error), isinstance(error, RequestError)))
            return
        self._send(Ready())
        try:
            self._serve()
        finally:
            self._pool.close()

    def _receive_launch(self) -> bytes | None:
        while data := self._sock.recv(2**20):
            if payloads := self._frames.feed(data):
                self._early = payloads[1:]
                return payloads[0]
        return None

    def _build(self, launch: Launch) -> None:
        sys.path[:] = launch.import_path
        import tokenizers

        from llmfw.core.interfaces.tokenizer import Tokenizer

        tokenizer = Tokenizer(
            tokenizers.Tokenizer.from_str(launch.tokenizer),
            eos_token_ids=launch.eos_token_ids,
            special_tokens=launch.special_tokens,
        )
        entry = Entry(**{**launch.entry, "needs": tuple(launch.entry["needs"])})
        backend = build_grammar_backend(entry, tokenizer, launch.vocab_size, launch.options)
        self._limits = launch.limits
        self._prove = partial(
            prove,
            backend,
            vocab_size=launch.vocab_size,
            eos_token_ids=launch.eos_token_ids,
            limits=launch.limits,
        )
        gc.collect()
        gc.freeze()  # otherwise garbage collection in a child would write to shared pages and copy them
        gc.disable()
        self._pool = Pool(launch.limits, self._spawn, self._send)

    def _spawn(self) -> Child:
        return Child(lambda spec: self._prove(spec), self._limits, self._close_sockets)

    def _close_sockets(self) -> None:
        """Close the supervisor's sockets. Called in a child."""
        gc.enable()
        self._sock.close()
        if hasattr(self, "_pool"):
            for child in self._pool.children:
                child.sock.close()

    def _serve(self) -> None:
        for payload in self._early:
            self._handle(payload)
        while True:
            now = monotonic()
            due = self._pool.advance(now)
            with selectors.PollSelector() as selector:
                selector.register(self._sock, selectors.EVENT_READ)
                for child in self._pool.children:
                    selector.register(child.sock, selectors.EVENT_READ, child)
                ready = selector.select(None if due is None else max(0.0, due - monotonic()))
            for key, _ in ready:
                child = key.data
                if child is None:
                    if not self._handle_messages():
                        return
                elif child in self._pool.children:  # an event before this one may have ended the child
                    self._pool.on_readable(child, monotonic())

    def _handle_messages(self) -> bool:
        """Handle messages from the API process; return False if the API process has closed the socket."""
        try:
            data = self._sock.recv(2**20)
        except OSError:
            data = b""
        for payload in self._frames.feed(data):
            self._handle(payload)
        return bool(data)

    def _handle(self, payload: bytes) -> None:
        message = decode_request(payload)
        if isinstance(message, Job):
            self._pool.add(message, monotonic())
        elif isinstance(message, Ping):
            self._send(message)
        else:
            self._pool.cancel(message.id, monotonic())

    def _send(self, message: Verdict | Ready | Unbuilt | Ping) -> None:
        with contextlib.suppress(OSError):  # if the API process is gone, reading reports it
            self._sock.sendall(framed(encode(message)))


def main() -> None:
    """Run the supervisor on the socket at standard input."""
    settle()
    descriptor = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with socket.socket(fileno=descriptor) as sock:
        sock.setblocking(True)
        Supervisor(sock).run()


if __name__ == "__main__":
    main()
