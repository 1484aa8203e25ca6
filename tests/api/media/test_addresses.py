"""Only public addresses count as such, and only hosts that the operator allows are asked."""

from __future__ import annotations

import pytest

from llmfw.api.media.addresses import MediaPolicy, check_addresses, is_public
from llmfw.core.media.limits import ImageRefusedError


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
        ),
        *(
            "169.254.169.254",
            "169.254.170.2",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ),
        *("192.0.0.9", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1"),
        *("239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *(
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
        ),
        *(
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
        ),
        *("2002:7f00:1::", "2001::1", "2001:20::1", "3fff::1", "5f00::1", "2620:4f:8000::1", "100::1"),
        *("", "localhost", "2130706433", "0177.0.0.1", "127.1", "1.2.3.4.5", "8.8.8.8 ", "08.8.8.8"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "2a00:1450::1"]
)
def test_addresses_on_the_internet(address: str) -> None:
    assert is_public(address)


def test_one_private_address_refuses_a_host() -> None:
    check_addresses("example.com", ["8.8.8.8"])
    for found in (["8.8.8.8", "10.0.0.1"], []):
        with pytest.raises(ImageRefusedError, match="no public address"):
            check_addresses("example.com", found)


ALLOWING = MediaPolicy(frozenset({"images.example.com", "cdn.example.com:8443"}))
ANYWHERE = MediaPolicy(frozenset({"cdn.example.com:8443"}), anywhere=True)


@pytest.mark.parametrize(
    ("policy", "scheme", "host", "port"),
    [
        (ALLOWING, "https", "images.example.com", 443),
        (ALLOWING, "http", "images.example.com", 80),
        (ALLOWING, "https", "cdn.example.com", 8443),
        (ANYWHERE, "https", "other.example.org", 443),
        (ANYWHERE, "https", "cdn.example.com", 8443),
        (ANYWHERE, "https", "93.184.216.34", 443),
    ],
)
def test_hosts_that_are_allowed(policy: MediaPolicy, scheme: str, host: str, port: int) -> None:
    policy.check(scheme, host, port)


@pytest.mark.parametrize(
    ("policy", "scheme", "host", "port"),
    [
        (MediaPolicy(), "https", "example.com", 443),
        (ALLOWING, "https", "example.com", 443),
        (ALLOWING, "https", "evil-images.example.com", 443),
        (ALLOWING, "https", "images.example.com.evil.org", 443),
        (ALLOWING, "https", "cdn.example.com", 443),
        (ALLOWING, "https", "images.example.com", 22),
        (ANYWHERE, "https", "example.com", 6379),
        (ANYWHERE, "http", "example.com", 443),
        (ANYWHERE, "ftp", "example.com", 80),
        (ANYWHERE, "file", "", 80),
        (ANYWHERE, "http", "2130706433", 80),
        (ANYWHERE, "http", "0177.0.0.1", 80),
        (ANYWHERE, "http", "0x7f000001", 80),
        (ANYWHERE, "http", "0x7f.1", 80),
        (ANYWHERE, "http", "127.1", 80),
        (ANYWHERE, "http", "127.0.0.1.", 80),
    ],
)
def test_hosts_that_are_refused(policy: MediaPolicy, scheme: str, host: str, port: int) -> None:
    with pytest.raises(ImageRefusedError) as caught:
        policy.check(scheme, host, port)
    assert caught.value.reason == "address"
