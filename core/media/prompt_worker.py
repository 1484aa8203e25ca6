"""Process that prepares images for a model, each prompt in a forked child within limits.

The process builds the media processor once. The processor may import torch. The API process imports neither
the processor nor torch.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any

import msgspec

from llmfw.core.base.described import described
from llmfw.core.base.errors import LLMFWError, RequestError
from llmfw.core.base.image import image_of
from llmfw.core.imports.hf import claim_process
from llmfw.core.interfaces.media_processor import MediaProcessor
from llmfw.core.ipc.fork_server import connected
from llmfw.core.ipc.resource_limits import limited
from llmfw.core.plugin.registry import Entry

from .limits import CODE
from .prompt_messages import Failed, Made, PromptJob, Rejected, Setup, decode_job, decode_source, encode

MAX_MESSAGE = 1000  # characters
MAX_TRACE = 2000  # characters
TOO_SLOW = "the images take more than {:g} s to prepare for the model; send fewer or smaller ones"
TOO_LARGE = "the images take more than {} MiB of memory to prepare for the model; send fewer or smaller ones"
CRASHED = "preparing the images for the model failed; send other ones"


class Preparing:
    """The jobs of children: each makes one prompt. Has the interface of `ForkedWork`."""

    def __init__(self, processor: MediaProcessor) -> None:
        self._processor = processor

    def longest_s(self, job: bytes) -> float:
        """Return the seconds after which a child is killed."""
        return decode_job(job).longest_s

    def run(self, job: bytes, memory: int) -> bytes:
        """Make a prompt of the source in the memory file, and write the prompt in its place."""
        known = decode_job(job)
        try:
            with limited(known.cpu_s, known.memory_mb):
                return encode(self._made(known, memory))
        except RequestError as error:
            return encode(Rejected(str(error)[:MAX_MESSAGE], error.code))
        except MemoryError:
            return encode(Rejected(TOO_LARGE.format(known.memory_mb), CODE))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; the parent reports it
            return encode(Failed(type(error).__name__, traceback.format_exc()[-MAX_TRACE:]))

    def too_slow(self, job: bytes) -> bytes:
        """Return the answer for a prompt that took too long."""
        return encode(Rejected(TOO_SLOW.format(decode_job(job).cpu_s), CODE))

    def after_death(self, job: bytes, exit_code: int) -> bytes:
        """Return the answer for a prompt whose child died."""
        return self.too_slow(job) if exit_code == -signal.SIGXCPU else encode(Rejected(CRASHED, CODE))

    def _made(self, job: PromptJob, memory: int) -> Made:
        source = decode_source(os.pread(memory, job.size, 0))
        prompt = encode(self._processor.process(source.text, source.images))
        os.ftruncate(memory, 0)
        view, place = memoryview(prompt), 0
        while place < len(view):
            place += os.pwrite(memory, view[place:], place)
        return Made(len(prompt))


def build(setup: Setup) -> MediaProcessor:
    """Build the media processor, and make one prompt with a small image, so that all its code is loaded.

    Raises:
        LLMFWError: the media processor cannot be built.
    """
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in setup.entry.items()
    }
    entry = Entry(**given)
    processor: MediaProcessor = entry.build(entry.load(), setup.model)
    processor.process(f"{processor.placeholder} a", [image_of(64, 48, bytes(3 * 64 * 48))])
    return processor


def main() -> None:
    """Run the process; the argument before the last one is a `Setup` in JSON."""
    server = connected()
    claim_process()
    try:
        processor = build(msgspec.json.decode(sys.argv[-2], type=Setup))
    except LLMFWError as error:
        server.refuse(str(error))
        return
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything; the parent reports it
        server.refuse(f"the media processor cannot be built: {described(error)}")
        return
    server.serve(Preparing(processor))


if __name__ == "__main__":
    main()
