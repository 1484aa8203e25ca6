"""Fetches images from the internet, within limits on addresses, redirects, bytes and time."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from functools import partial
from urllib.parse import urljoin

import httpcore
import httpx

from llmfw.core.media.limits import ImageLimits, ImageRefusedError, too_many_bytes

from .addresses import PORTS, MediaPolicy
from .dialer import CheckedDialer
from .names import FairLookups, Resolve, SystemResolver

MAX_REDIRECTS = 3
TOTAL_S = 10.0
"""Seconds for an image, with look-ups and redirects."""
MAX_URL = 8192  # characters
MAX_AT_A_TIME, MAX_OF_TENANT = 64, 8
"""Images that are fetched at a time, of all tenants and of one."""

_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = (
    (b"accept", b"image/png, image/jpeg, image/webp, image/gif"),
    (b"accept-encoding", b"identity"),
    (b"connection", b"close"),
    (b"user-agent", b"llmfw"),
)


class ImageFetcher:
    """Fetches images. Sends no cookies and no credentials, and uses no proxy.

    Args:
        policy: hosts that are allowed.
        limits: limits of an image.
        resolve: resolver of names; None: the system's.
        network: connects to addresses that have been checked; None: httpcore's own.
        tls: settings of TLS; None: the usual authorities.
        total_s: seconds for an image.
    """

    def __init__(
        self,
        policy: MediaPolicy,
        limits: ImageLimits,
        *,
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
        total_s: float = TOTAL_S,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._names = FairLookups(resolve or SystemResolver())
        self._network = network
        self._total_s = total_s
        self._context = tls
        self._places = asyncio.Semaphore(MAX_AT_A_TIME)
        self._of_tenants: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def fetch(self, url: str, tenant: str = "") -> bytes:
        """Return the bytes at a URL.

        Raises:
            ImageRefusedError: the URL is not allowed, or gives no image within the limits.
        """
        parsed = _parsed(url)
        self._check(parsed)  # before the request waits for others
        of_tenant = self._of_tenants.get(tenant)
        if of_tenant is None:
            of_tenant = self._of_tenants[tenant] = asyncio.Semaphore(MAX_OF_TENANT)
        async with of_tenant, self._places:
            try:
                async with asyncio.timeout(self._total_s):
                    return await self._follow(parsed, tenant)
            except TimeoutError:
                raise _gives_none(f"it takes longer than {self._total_s:g} s") from None
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
                # The library's own text may hold addresses.
                raise _gives_none("its server cannot be reached, or does not speak HTTP") from None

    async def _follow(self, url: httpx.URL, tenant: str) -> bytes:
        dialer = CheckedDialer(partial(self._names.addresses, tenant), self._network)
        for _ in range(MAX_REDIRECTS + 1):
            self._check(url)
            tls = await self._tls() if url.scheme == "https" else None
            async with httpcore.AsyncConnectionPool(
                ssl_context=tls, max_connections=1, network_backend=dialer
            ) as pool:
                target = httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                )
                headers = [(b"host", url.netloc), *_HEADERS]
                async with pool.stream("GET", target, headers=headers) as response:
                    if response.status not in _REDIRECTS:
                        return await self._body(response)
                    url = _redirected(url, response)
        raise _gives_none(f"it redirects more than {MAX_REDIRECTS} times")

    def _check(self, url: httpx.URL) -> None:
        if url.userinfo:
            raise ImageRefusedError("address", "is at a URL with a user or a password; leave them out")
        port = PORTS.get(url.scheme, 0) if url.port is None else url.port
        self._policy.check(url.scheme, url.raw_host.decode("ascii").lower(), port)

    async def _body(self, response: httpcore.Response) -> bytes:
        headers = {name.lower(): value for name, value in response.headers}
        if response.status != 200:
            raise _gives_none(f"its server answers with status {response.status}")
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
            raise _gives_none("its server compresses what it should not")
        announced = headers.get(b"content-length", b"0").strip()
        if announced.isdigit() and len(announced) < 20 and int(announced) > self._limits.file_bytes:
            raise too_many_bytes(int(announced), self._limits)
        body = bytearray()
        async for piece in response.aiter_stream():
            body += piece
            if len(body) > self._limits.file_bytes:
                raise too_many_bytes(len(body), self._limits)
        return bytes(body)

    async def _tls(self) -> ssl.SSLContext:
        """Return the settings of TLS; reading the certificates of all authorities takes 25 ms."""
        if self._context is None:
            self._context = await asyncio.to_thread(httpx.create_ssl_context, trust_env=False)
        return self._context


def _parsed(url: str) -> httpx.URL:
    if len(url) > MAX_URL:
        raise ImageRefusedError(
            "address", f"is at a URL of {len(url)} characters; at most {MAX_URL} are allowed"
        )
    try:
        return httpx.URL(url).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError):
        raise ImageRefusedError(
            "address", "is at no valid URL; it must be a data: URL, or one of https"
        ) from None


def _redirected(url: httpx.URL, response: httpcore.Response) -> httpx.URL:
    place = next((value for name, value in response.headers if name.lower() == b"location"), None)
    if place is None:
        raise _gives_none("it redirects to nowhere")
    try:
        joined = urljoin(str(url), place.decode("latin-1"))
    except ValueError:  # for example, an address of IPv6 without its second bracket
        raise _gives_none("it redirects to no valid URL") from None
    found = _parsed(joined)
    if url.scheme == "https" and found.scheme == "http":
        raise ImageRefusedError("address", "is at a URL that redirects from https to http")
    return found


def _gives_none(why: str) -> ImageRefusedError:
    return ImageRefusedError("source", f"is at a URL that gives none: {why}")
