"""Process that decodes images, each in a forked child within limits.

A child can open no files or sockets, and can write no more than a picture's pixels.
"""

from __future__ import annotations

import os
import resource
import signal

from llmfw.core.ipc.fork_server import connected
from llmfw.core.ipc.resource_limits import limited, set_soft

from .limits import ImageLimits, ImageRefusedError
from .messages import Decoded, Refused, decode_job, encode

HINT = "images need Pillow, which is not installed; the operator can install it: pip install 'llmfw-engine[images]'"


class Decoding:
    """The jobs of children: each decodes one image. Has the interface of `ForkedWork`."""

    def longest_s(self, job: bytes) -> float:
        """Return the seconds after which a child is killed."""
        return decode_job(job).limits.longest_s

    def run(self, job: bytes, memory: int) -> bytes:
        """Decode the file at the beginning of the memory file, and write the pixels in its place."""
        from .picture import decode

        known = decode_job(job)
        limits = known.limits
        set_soft(resource.RLIMIT_FSIZE, 3 * limits.pixels)
        try:
            with limited(limits.cpu_s, limits.memory_mb):
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # from here on, nothing can be opened
                width, height, pixels = decode(os.pread(memory, known.size, 0), limits)
            _write(memory, pixels)
            return encode(Decoded(width, height))
        except ImageRefusedError as error:
            return encode(Refused(error.reason, str(error)))
        except MemoryError:
            return encode(_too_large(limits))

    def too_slow(self, job: bytes) -> bytes:
        """Return the answer for an image that took too long."""
        return encode(_too_slow(decode_job(job).limits))

    def after_death(self, job: bytes, exit_code: int) -> bytes:
        """Return the answer for an image whose child died."""
        if exit_code == -signal.SIGXCPU:
            return self.too_slow(job)
        return encode(Refused("crash", "made its decoder fail; save it anew with another program"))


def _write(descriptor: int, data: bytes) -> None:
    view, place = memoryview(data), 0
    while place < len(view):
        place += os.pwrite(descriptor, view[place:], place)


def _too_slow(limits: ImageLimits) -> Refused:
    return Refused("cost", f"takes more than {limits.cpu_s:g} s to decode; scale it down, or save it anew")


def _too_large(limits: ImageLimits) -> Refused:
    return Refused(
        "cost", f"takes more than {limits.memory_mb} MiB of memory to decode; scale it down, or save it anew"
    )


def main() -> None:
    """Run the process."""
    server = connected()
    try:
        from .picture import warm_up
    except ImportError:
        server.refuse(HINT)
        return
    warm_up()
    server.serve(Decoding())


if __name__ == "__main__":
    main()
