"""Prepares the process for serving: open-file limit, allocator, and a warning if no API key is set."""

from __future__ import annotations

import logging
import os

from llmfw.core.base.config import ServerConfig

from .hosts import listens_on_loopback
from .memory import Memory

SPARE_FILES = 256
"""Open files to allow in addition to one per connection."""

logger = logging.getLogger(__name__)


def prepare_process(config: ServerConfig, *, has_keys: bool) -> None:
    """Raise the limit of open files, configure the allocator, and warn if anyone can use the server."""
    _allow_files(config.max_connections + SPARE_FILES)
    Memory().settle()
    if not has_keys and not listens_on_loopback(config.host):
        logger.warning(
            "NO API KEY IS SET, AND THE SERVER LISTENS ON %s: ANYONE WHO REACHES IT CAN USE IT AND READ WHAT OTHERS "
            "STORE. Set --api-key, or listen on 127.0.0.1",
            config.host,
        )


def _allow_files(number: int) -> None:
    """Raise the limit of open files to `number`, or as far as the system allows; warn if that is less."""
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    most = number if hard == resource.RLIM_INFINITY else min(number, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < number:
        logger.warning(
            "The system allows %d open files, and --max-connections may need %d; raise the limit (ulimit -n) or set "
            "--max-connections %d",
            most,
            number,
            max(1, most - SPARE_FILES),
        )
