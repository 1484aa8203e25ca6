"""Administrators' operations on the prefix cache: pin, view and flush. Works on token ids.

A pin locks the cached part of a prefix, and locks the rest once a request has computed it. The cache does the
locking (`RadixCache.keep`). This module enforces limits and expiry times, and drops pins if they prevent
every request from running.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import numpy as np

from llmfw.core.base.control import CacheView, PinInfo, PinPrefix
from llmfw.core.base.errors import NotFoundError, RequestError

from .kv_pool import KVPool
from .prefix_cache import CacheNode, PrefixCache, Subscription
from .radix_cache import RadixCache
from .snapshot_cache import SnapshotCache
from .view import largest_prefixes

logger = logging.getLogger(__name__)

MAX_TTL_S = 365 * 24 * 3600.0
MAX_TOKEN_ID = 2**31 - 1
SHOWN_PREFIXES = 50


@dataclass(frozen=True, slots=True)
class _Pin:
    id: str
    subscription: Subscription
    expires_at: float

    @property
    def node(self) -> CacheNode:
        """Cache node at which the cached part of the pinned prefix ends."""
        assert self.subscription.group is not None
        return self.subscription.group.node

    def info(self, now: float) -> PinInfo:
        """Return the pin's description, as reported to administrators."""
        left = max(0.0, self.expires_at - now)
        return PinInfo(self.id, len(self.subscription.token_ids), self.subscription.num_tokens, left)


class CacheKeeper:
    """Pins prefixes in a prefix cache, and describes and flushes its contents.

    Args:
        cache: the engine's prefix cache. If caching is disabled, all commands are rejected.
        pool: pool of the cache's pages.
        max_pinned_tokens: maximum number of tokens of all pins together. Tokens that two pins share count
            twice.
        clock: monotonic clock in seconds.
        eviction: name of the cache's eviction rule, for `view`.
    """

    def __init__(
        self,
        cache: PrefixCache,
        pool: KVPool,
        max_pinned_tokens: int,
        clock: Callable[[], float],
        eviction: str = "lru",
    ) -> None:
        self._cache = cache if isinstance(cache, RadixCache) else None
        self._page_size = pool.page_size
        self._max_pinned_tokens = max_pinned_tokens
        self._clock = clock
        self._eviction = eviction
        self._pins: dict[str, _Pin] = {}
        self._next_end = math.inf

    def pin(self, command: PinPrefix) -> PinInfo:
        """Protect a prefix from eviction until its ttl ends or `unpin` removes the pin.

        Pins only whole pages: tokens after the last whole page are ignored.

        Raises:
            RequestError: the prefix is shorter than a page, has an invalid token id, or exceeds the limit on
                pinned tokens; the ttl is out of range; pins already keep half of the state snapshots; or the
                cache is disabled.
        """
        cache, now = self._radix_cache(), self._clock()
        self._check_snapshots(cache)
        if not 0 < command.ttl_s <= MAX_TTL_S:  # also rejects NaN
            raise RequestError(
                f"'ttl_s' is {command.ttl_s}; it has to be above 0 and at most {MAX_TTL_S:.0f}, which is a year",
                param="ttl_s",
            )
        token_ids = self._whole_pages(command.token_ids)
        left = self._max_pinned_tokens - self._num_asked_for()
        if len(token_ids) > left:
            raise RequestError(
                f"the prefix has {len(token_ids)} tokens, but of the {self._max_pinned_tokens} that pins may keep "
                f"{left} are left; unpin another one, or raise --max-pinned-fraction",
                param="token_ids",
            )
        subscription = cache.keep(token_ids, command.salt)
        pin = _Pin(f"pin-{uuid4().hex[:16]}", subscription, now + command.ttl_s)
        self._pins[pin.id] = pin
        self._next_end = min(self._next_end, pin.expires_at)
        return pin.info(now)

    def unpin(self, pin_id: str) -> PinInfo:
        """Remove a pin.

        Raises:
            NotFoundError: no such pin exists, or it has expired.
            RequestError: there is no cache.
        """
        self._radix_cache()
        self.tick()
        pin = self._pins.get(pin_id)
        if pin is None:
            raise NotFoundError(f"no prefix is pinned as {pin_id!r}; the pin may have expired", param="id")
        info = pin.info(pin.expires_at)
        self._drop(pin)
        return info

    def view(self, most: int = SHOWN_PREFIXES) -> CacheView:
        """Return the contents of the cache; see `largest_prefixes` for the choice of prefixes.

        Raises:
            RequestError: `most` is negative, or there is no cache.
        """
        cache = self._radix_cache()
        if most < 0:
            raise RequestError(f"'most' is {most}; it has to be 0 or more", param="most")
        self.tick()
        now, nodes = self._clock(), [pin.node for pin in self._pins.values()]
        slots = cache.slots if isinstance(cache, SnapshotCache) else None
        return CacheView(
            num_tokens=cache.num_pages * self._page_size,
            num_locked=(cache.num_pages - cache.num_evictable_pages) * self._page_size,
            num_pinned=cache.num_kept_pages * self._page_size,
            num_nodes=len(cache.nodes()),
            num_evicted=cache.num_evicted,
            num_hit=cache.num_hit,
            num_asked=cache.num_asked,
            eviction=self._eviction,
            num_snapshots=0 if slots is None else slots.num_kept,
            max_snapshots=0 if slots is None else slots.count,
            prefixes=largest_prefixes(cache, nodes, most),
            pins=[pin.info(now) for pin in self._pins.values()],
        )

    def flush(self) -> CacheView:
        """Evict every prefix that no running request and no pin holds; return the remaining contents.

        Raises:
            RequestError: there is no cache.
        """
        cache = self._radix_cache()
        cache.evict(cache.num_evictable_pages)
        return self.view()

    def tick(self) -> None:
        """Update the cache's time, and drop expired pins and prefixes. Constant time if none expired."""
        if self._cache is None:
            return
        now = self._cache.now = self._clock()
        if now >= self._next_end:
            for pin in [pin for pin in self._pins.values() if pin.expires_at <= now]:
                self._drop(pin)
        if now >= self._cache.next_expiry:
            self._cache.expire()

    @property
    def sleep_s(self) -> float | None:
        """Seconds until `tick` removes a prefix that expires; 0 if it is due; None: no prefix expires."""
        if self._cache is None or (at := self._cache.next_expiry) == math.inf:
            return None
        return max(0.0, at - self._clock())

    def give_up(self) -> bool:
        """Drop the pin that expires first among the pins that hold pages, to free pages for requests.

        Call this only if no request runs and none can be admitted; repeat the call until a request can be
        admitted.

        Returns:
            Whether a pin was dropped.
        """
        holding = [pin for pin in self._pins.values() if pin.subscription.num_tokens]
        if not holding:
            return False
        pin = min(holding, key=lambda each: each.expires_at)
        logger.warning(
            "%s is unpinned: it keeps %d tokens, without which no request can run",
            pin.id,
            pin.subscription.num_tokens,
        )
        self._drop(pin)
        return True

    def _radix_cache(self) -> RadixCache:
        if self._cache is None:
            raise RequestError(
                "the prefix cache is off; start the server without --disable-radix-cache",
                code="unsupported_operation",
            )
        return self._cache

    def _check_snapshots(self, cache: RadixCache) -> None:
        """Check that half of the slots for state snapshots remain for prefixes that are not pinned."""
        if not isinstance(cache, SnapshotCache):
            return
        self.tick()
        most = max(1, cache.slots.count // 2)
        if len(self._pins) >= most:
            raise RequestError(
                f"{len(self._pins)} prefixes are pinned, and each keeps a snapshot of states, of which pins may keep {most}; "
                "unpin another one, or raise --max-state-snapshots",
                code="unsupported_operation",
            )

    def _whole_pages(self, token_ids: list[int]) -> np.ndarray:
        size = len(token_ids) - len(token_ids) % self._page_size
        if not size:
            raise RequestError(
                f"a prefix of {len(token_ids)} tokens is shorter than a page, which has {self._page_size}; pin a longer one",
                param="token_ids",
            )
        wrong = next((each for each in token_ids if not 0 <= each <= MAX_TOKEN_ID), None)
        if wrong is not None:
            raise RequestError(
                f"'token_ids' has {wrong}, which is not a token id; they go from 0 to {MAX_TOKEN_ID}",
                param="token_ids",
            )
        return np.array(token_ids[:size], dtype=np.int32)

    def _num_asked_for(self) -> int:
        return sum(len(pin.subscription.token_ids) for pin in self._pins.values())

    def _drop(self, pin: _Pin) -> None:
        assert self._cache is not None
        del self._pins[pin.id]
        self._cache.unsubscribe(pin.subscription)
        self._next_end = min((pin.expires_at for pin in self._pins.values()), default=math.inf)
