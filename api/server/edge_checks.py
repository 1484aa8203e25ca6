"""Checks settings of the HTTP edge before anything is loaded. Imports no HTTP library."""

from __future__ import annotations

import ipaddress
import re

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def check_edge(config: ServerConfig) -> None:
    """Check the root path and the trusted proxies.

    Raises:
        ConfigError: the root path is not a path such as "/llm", or a proxy is not an address or a network.
    """
    if not _ROOT_PATH.fullmatch(config.root_path or ""):
        raise ConfigError(
            f"--root-path is {config.root_path!r}; it must be a path such as /llm or /team/llm, of letters, digits and "
            "._~-, without a final /"
        )
    for proxy in config.trusted_proxy:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise ConfigError(
                f"--trusted-proxy is {proxy!r}; it must be an IP address or a network such as 10.0.0.0/8"
            ) from error
