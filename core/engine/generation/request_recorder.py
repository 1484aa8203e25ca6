"""Records arrival times and lengths of requests, but not their contents, as a trace for `llmfw simulate`.

Writes one JSON line per finished request, in Mooncake's format with additional fields. Hashes identify blocks
of 16 tokens; each hash includes the hash of the previous block. The key of the hashes is random for each
start and not stored, so a text cannot be found by hashing candidates. The trace only reveals which requests
share a prefix.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from llmfw.core.base.errors import ConfigError
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.trace import QuietTrace

logger = logging.getLogger(__name__)

BLOCK = 16
BLOCK_BYTES = 4 * BLOCK


class RequestRecorder(QuietTrace):
    """Writes a trace to a new file. The file must not exist, because hashes of two recordings cannot be
    compared.

    Args:
        path: path of the file.
        page_size: tokens in a page of the KV cache; a replay needs it.
        clock: returns the current time in seconds.

    Raises:
        ConfigError: the file cannot be created.
    """

    def __init__(self, path: str, page_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise ConfigError(f"--record-requests {path} cannot be made: {error.strerror}") from error
        self._path, self._clock, self._began, self._key = path, clock, clock(), os.urandom(16)
        self._page_size = page_size
        self._arrivals: dict[str, float] = {}  # milliseconds
        self._tenants: dict[str, int] = {}

    def arrived(self, seq: SequenceState) -> None:
        self._arrivals[seq.id] = 1e3 * (self._clock() - self._began)
        self._tenants.setdefault(seq.request.tenant, len(self._tenants))

    def ended(self, seq: SequenceState, reason: str) -> None:
        request, data = seq.request, seq.cache_ids.tobytes()
        cut, end = seq.prompt_len // BLOCK * BLOCK_BYTES, 4 * seq.prompt_len
        full = self._links(request.cache_salt.encode(), data[:cut])
        last = full[-1] if full else request.cache_salt.encode()
        line = {
            "timestamp": self._arrivals.pop(seq.id),
            "input_length": seq.prompt_len,
            "output_length": seq.num_output,
            "hash_ids": _numbers(full + self._links(last, data[cut:end])),
            "block_size": BLOCK,
            "output_hash_ids": _numbers(self._links(last, data[cut:])),
            "max_tokens": seq.max_tokens,
            "priority": request.priority,
            "tenant": self._tenants[request.tenant],
            "deferrable": request.deferrable,
            "page_size": self._page_size,
        }
        try:
            with open(self._path, "ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:  # a full disk must not end the engine
            logger.error("request %s is not recorded: %s", seq.id, error)

    def _links(self, link: bytes, data: bytes) -> list[bytes]:
        """Return the hashes of the blocks of `data`.

        Each hash includes the previous one; the first includes `link`.
        """
        links = []
        for start in range(0, len(data), BLOCK_BYTES):
            link = blake2b(link + data[start : start + BLOCK_BYTES], digest_size=8, key=self._key).digest()
            links.append(link)
        return links


def _numbers(links: list[bytes]) -> list[int]:
    return [int.from_bytes(link) >> 11 for link in links]  # 53 bits: exact in every JSON reader
