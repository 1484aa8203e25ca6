"""Reads the limits and the allowed hosts of images from a server's settings."""

from __future__ import annotations

import re

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.media.limits import ImageLimits

from .addresses import MediaPolicy

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?", re.IGNORECASE)
MEMORY_OF_PIXEL = 16
"""Bytes that a pixel takes while it is decoded: 4 of Pillow's, 3 of the result, and copies that turn or convert it."""
LEAST_MEMORY_MB = 256


def media_policy(config: ServerConfig) -> MediaPolicy:
    """Return the hosts from which images may be fetched.

    Raises:
        ConfigError: a host is not written as HOST or HOST:PORT.
    """
    for host in config.allow_media_host:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"--allow-media-host is {host!r}; it must be the name of a host, as in images.example.com, or HOST:PORT"
            )
    return MediaPolicy(
        frozenset(host.lower() for host in config.allow_media_host), config.media_from_anywhere
    )


def image_limits(config: ServerConfig) -> ImageLimits:
    """Return the limits of an image that a server's settings define."""
    return ImageLimits(
        file_bytes=config.max_image_mb * 2**20,
        pixels=config.max_image_pixels,
        memory_mb=LEAST_MEMORY_MB + config.max_image_pixels * MEMORY_OF_PIXEL // 2**20,
    )
