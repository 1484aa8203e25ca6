"""Images are fetched from public addresses that the operator allows, and from nowhere else, whatever a server answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from llmfw.api.media.addresses import MediaPolicy
from llmfw.api.media.fetcher import MAX_OF_TENANT, ImageFetcher
from llmfw.api.media.names import MAX_LOOKUPS_OF_TENANT
from llmfw.core.media.limits import ImageLimits, ImageRefusedError

from ...doubles.certificates import needs_openssl, write_certificate
from ...doubles.image_host import FORBIDDEN_TARGETS, IMAGE, PUBLIC, ImageHost, Internet, Names

LIMITS = ImageLimits(file_bytes=2**20)
ANYWHERE = MediaPolicy(anywhere=True)


class Rig:
    """A fetcher, and the network around it."""

    def __init__(self, host: ImageHost, policy: MediaPolicy = ANYWHERE, total_s: float = 5.0) -> None:
        self.host = host
        self.internet = Internet(host.port)
        self.names = Names()
        self.fetcher = ImageFetcher(
            policy, LIMITS, resolve=self.names, network=self.internet, total_s=total_s
        )

    async def refusal(self, url: str) -> ImageRefusedError:
        with pytest.raises(ImageRefusedError) as caught:
            await self.fetcher.fetch(url)
        assert set(self.internet.dialled) <= {PUBLIC}, "a forbidden address was dialled"
        return caught.value


@pytest_asyncio.fixture
async def host() -> AsyncIterator[ImageHost]:
    async with ImageHost().serving() as found:
        yield found


async def test_an_image_is_fetched_without_secrets(host: ImageHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    rig = Rig(host)
    assert await rig.fetcher.fetch("http://images.example/good#part") == IMAGE
    assert await rig.fetcher.fetch("http://images.example/wrong-type") == IMAGE
    [(path, headers), _] = host.requests
    assert (path, headers["host"]) == ("/good", "images.example")
    assert not {"cookie", "authorization", "referer"} & headers.keys()


@pytest.mark.parametrize("target", FORBIDDEN_TARGETS)
async def test_forbidden_urls_are_never_dialled(host: ImageHost, target: str) -> None:
    """Neither directly nor by a redirect."""
    rig = Rig(host)
    await rig.refusal(target)
    assert host.requests == []
    redirect = "http://images.example/to?" + target.encode().decode("latin-1")
    with pytest.raises(ImageRefusedError):
        await rig.fetcher.fetch(redirect)
    assert set(rig.internet.dialled) <= {PUBLIC}
    assert len(host.requests) <= 1


async def test_a_name_is_resolved_once_per_hop(host: ImageHost) -> None:
    """What was checked is dialled: a name that changes afterwards changes nothing, and is checked again at the next hop."""
    rig = Rig(host)
    assert await rig.fetcher.fetch("http://changing.example/good") == IMAGE
    assert rig.names.asked == ["changing.example"]
    rig = Rig(host)
    error = await rig.refusal("http://changing.example/hops/1")
    assert (error.reason, rig.internet.dialled) == ("address", [PUBLIC])


async def test_three_redirects_are_followed(host: ImageHost) -> None:
    rig = Rig(host)
    assert await rig.fetcher.fetch("http://images.example/hops/3") == IMAGE
    assert (await rig.refusal("http://images.example/hops/4")).reason == "source"
    assert all("cookie" not in headers for _, headers in host.requests)


async def test_each_hop_must_be_allowed(host: ImageHost) -> None:
    rig = Rig(host, MediaPolicy(frozenset({"images.example"})))
    assert await rig.fetcher.fetch("http://images.example/hops/1") == IMAGE
    error = await rig.refusal("http://images.example/to?http://other.example/good")
    assert "other.example" in str(error)


@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        "gzipped",
        "lying",
        "short",
        "no-http",
        "long-head",
        "error",
        "partial",
        "missing",
        "endless",
    ],
)
async def test_bad_answers_are_refused(host: ImageHost, path: str) -> None:
    error = await Rig(host).refusal(f"http://images.example/{path}")
    assert error.reason in ("source", "bytes")
    assert not any(word in str(error) for word in ("secret", PUBLIC, "127.0.0.1", "SSH"))


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example/slow",
        "http://images.example/slow-head",
        "http://images.example/silent",
        "http://slow.example/",
    ],
)
async def test_slow_servers_are_given_up(host: ImageHost, url: str) -> None:
    error = await Rig(host, total_s=0.3).refusal(url)
    assert "longer than 0.3 s" in str(error)


async def test_slow_servers_delay_no_other_tenant(host: ImageHost) -> None:
    rig = Rig(host, total_s=60)
    slow = [
        asyncio.create_task(rig.fetcher.fetch("http://images.example/silent", "many")) for _ in range(100)
    ]
    async with asyncio.timeout(20):
        while len(host.requests) < MAX_OF_TENANT:
            await asyncio.sleep(0.01)
    assert await rig.fetcher.fetch("http://images.example/good", "one") == IMAGE
    assert len(host.requests) == MAX_OF_TENANT + 1
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_names_given_up_still_count(host: ImageHost) -> None:
    """One tenant's name server that never answers takes few look-ups, and none of another tenant."""
    rig = Rig(host, total_s=0.05)
    for _ in range(3):
        slow = [rig.fetcher.fetch("http://slow.example/", "many") for _ in range(MAX_OF_TENANT)]
        refused = await asyncio.gather(*slow, return_exceptions=True)
        assert all(isinstance(error, ImageRefusedError) for error in refused)
    assert rig.names.asked == ["slow.example"] * MAX_LOOKUPS_OF_TENANT
    rig.fetcher._total_s = 5.0
    assert await rig.fetcher.fetch("http://images.example/good", "one") == IMAGE


@needs_openssl
async def test_certificates_are_checked_for_the_name(tmp_path: Path) -> None:
    """Not for the address that is dialled."""
    certificate, key = write_certificate(tmp_path, "images.example")
    serving, trusting = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=certificate),
    )
    serving.load_cert_chain(certificate, key)
    async with ImageHost().serving(serving) as host:
        internet = Internet(host.port)
        fetcher = ImageFetcher(ANYWHERE, LIMITS, resolve=Names(), network=internet, tls=trusting)
        assert await fetcher.fetch("https://images.example/good") == IMAGE
        with pytest.raises(ImageRefusedError) as caught:
            await fetcher.fetch("https://other.example/good")
        assert caught.value.reason == "source"
        with pytest.raises(ImageRefusedError, match="from https to http"):
            await fetcher.fetch("https://images.example/to?http://images.example/good")
        assert len(host.requests) == 2


async def test_the_system_s_resolver_finds_this_machine(host: ImageHost) -> None:
    """And so the fetcher refuses it, by name and by address."""
    internet = Internet(host.port)
    fetcher = ImageFetcher(ANYWHERE, LIMITS, network=internet)
    for url in ("http://localhost/", "http://[::1]/", "http://127.0.0.1/", f"http://{'a' * 70}.example/"):
        with pytest.raises(ImageRefusedError):
            await fetcher.fetch(url)
    assert internet.dialled == []
