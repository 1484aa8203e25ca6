"""The middleware `br`: compresses replies as `gzip` does, by Brotli for clients that prefer it or like both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from llmfw.core import ConfigError

from .gzip import Gzip, Header, accepted_weight

HINT = "the middleware br needs the package brotli, which is not installed; install it: pip install 'llmfw-engine[brotli]'"

FAST_QUALITY = 5
"""Highest quality by which a body below `IN_THREAD_BYTES` takes no more than a few milliseconds. By 11 it takes 70."""


class Brotli(Gzip):
    """Compresses by Brotli or gzip, whichever the request's `accept-encoding` weighs more; by Brotli if both weigh the same."""

    class Options(Gzip.Options, frozen=True):
        """
        Attributes:
            quality: Brotli's effort, from 0 (fast) to 11 (small, and some hundred times slower).
        """

        quality: Annotated[int, msgspec.Meta(ge=0, le=11)] = 5

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        try:
            import brotli  # an extra, which few servers need
        except ImportError as error:
            raise ConfigError(HINT) from error
        self._brotli: Any = brotli
        if options.quality > FAST_QUALITY:
            self.in_thread_bytes = 0

    def coding_of(self, headers: Sequence[Header]) -> str:
        weight = accepted_weight(headers, "br")
        return "br" if weight and weight >= accepted_weight(headers, "gzip") else super().coding_of(headers)

    def encode(self, body: bytes, coding: str) -> bytes:
        if coding != "br":
            return super().encode(body, coding)
        return bytes(self._brotli.compress(body, mode=self._brotli.MODE_TEXT, quality=self.options.quality))
