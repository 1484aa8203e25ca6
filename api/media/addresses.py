"""Decides which hosts and addresses the server may fetch images from.

The server can reach hosts that its clients cannot: databases, and the metadata service of a cloud, which
hands out credentials. So the server connects only to public addresses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

import msgspec

from llmfw.core.media.limits import ImageRefusedError

PORTS = {"https": 443, "http": 80}
"""Scheme of a URL → its port. Other ports are dialled for hosts alone that the operator has allowed with the port."""

_IPV6_INTERNET = ipaddress.IPv6Network("2000::/3")
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # metadata of Azure, a public address
            "192.0.0.0/24",  # metadata of Oracle's cloud, among others
            "192.88.99.0/24",  # 6to4 relays
            "2001::/23",  # Teredo, which embeds IPv4 addresses, and others for special purposes
            "2001:db8::/32",
            "2002::/16",  # 6to4, which embeds IPv4 addresses
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
"""Networks that Python counts among the public ones, in some versions, and that are not for this."""
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)


class MediaPolicy(msgspec.Struct, frozen=True):
    """The hosts from which the operator allows images.

    Attributes:
        hosts: names of hosts, each as HOST or HOST:PORT, in lower case.
        anywhere: whether all other hosts are allowed, too, at the ports of PORTS.
    """

    hosts: frozenset[str] = frozenset()
    anywhere: bool = False

    @property
    def allows_any(self) -> bool:
        """Whether images may be fetched at all."""
        return self.anywhere or bool(self.hosts)

    def check(self, scheme: str, host: str, port: int) -> None:
        """Raise ImageRefusedError unless images may be fetched from a host.

        Args:
            host: name of the host as it is resolved, in lower case.
        """
        if scheme not in PORTS:
            raise ImageRefusedError(
                "address", f"is at a URL of the scheme {scheme[:20]!r}; it must be https or data"
            )
        if not self.allows_any:
            raise ImageRefusedError(
                "address",
                "is at a URL, and this server fetches none; send a data: URL, or ask the operator for --allow-media-host",
            )
        _check_name(host)
        if f"{host}:{port}" in self.hosts:
            return
        if not self.anywhere and host not in self.hosts:
            raise ImageRefusedError(
                "address", f"is at the host {host[:100]!r}, which this server's operator does not allow"
            )
        if port != PORTS[scheme]:
            raise ImageRefusedError(
                "address", f"is at port {port}; only port {PORTS[scheme]} of {scheme} is allowed"
            )


def _check_name(host: str) -> None:
    """Raise ImageRefusedError for an empty host, and for a number that is not a plain IPv4 address.

    Resolvers read 2130706433, 017700000001, 0x7f.1 and 127.1 as 127.0.0.1.
    """
    last = host.rstrip(".").rpartition(".")[2]
    if not host or (_NUMBER.fullmatch(last) and not _is_address(host)):
        raise ImageRefusedError("address", f"is at the host {host[:100]!r}, which is no name of a host")


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def check_addresses(host: str, addresses: Collection[str]) -> None:
    """Raise ImageRefusedError unless all addresses of a host are public.

    These addresses are not public: private, loopback, link-local and multicast addresses, addresses of
    metadata services, and IPv6 addresses that embed an IPv4 address.
    """
    if not addresses or not all(map(is_public, addresses)):
        raise ImageRefusedError(
            "address",
            f"is at the host {host[:100]!r}, which has no public address; images are fetched from the internet only",
        )


def is_public(address: str) -> bool:
    """Return whether an address belongs to a host on the internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found not in _IPV6_INTERNET):
        return False
    if any(found in network for network in _NEVER if network.version == found.version):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)
