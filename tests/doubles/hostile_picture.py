"""A worker that decodes images, whose children do to themselves what the file says."""

from __future__ import annotations

import os
import signal
import socket
import time

from llmfw.core.media import picture, worker
from llmfw.core.media.limits import ImageLimits

Decoded = tuple[int, int, bytes]


def hang() -> Decoded:
    time.sleep(600)
    raise AssertionError


def spin() -> Decoded:
    while True:
        pass


def eat() -> Decoded:
    held = []
    while True:
        held.append(bytearray(2**20))


def crash() -> Decoded:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def forge() -> Decoded:
    """Write more pixels than the answer says, and less."""
    return 100, 100, b"\0" * 17


def flood() -> Decoded:
    """Write far more than any image has."""
    return 4, 4, b"\0" * 2**24


def escape() -> Decoded:
    """Try to reach files and the network; the image tells what was possible."""
    reached = 0
    for attempt in (lambda: os.open("/etc/hostname", os.O_RDONLY), socket.socket, lambda: os.pipe()):
        try:
            attempt()
            reached += 1
        except OSError:
            pass
    return 4, 4, bytes([reached]) * 48


ACTS = {act.__name__.encode(): act for act in (hang, spin, eat, crash, forge, flood, escape)}


def act_or_decode(data: bytes, limits: ImageLimits) -> Decoded:
    found = ACTS.get(data)
    return found() if found else original(data, limits)


original = picture.decode
picture.decode = act_or_decode

if __name__ == "__main__":
    worker.main()
