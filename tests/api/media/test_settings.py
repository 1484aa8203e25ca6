"""The settings of a server become limits and allowed hosts."""

from __future__ import annotations

import pytest

from llmfw.api.media.settings import image_limits, media_policy
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError


def test_hosts_and_limits_come_from_the_settings() -> None:
    config = ServerConfig(
        served_model_name="m",
        allow_media_host=("Images.Example.com", "b:8443"),
        max_image_mb=3,
        max_image_pixels=2**20,
    )
    policy, limits = media_policy(config), image_limits(config)
    assert (policy.hosts, policy.anywhere) == (frozenset({"images.example.com", "b:8443"}), False)
    assert (limits.file_bytes, limits.pixels, limits.memory_mb) == (3 * 2**20, 2**20, 256 + 16)
    assert not media_policy(ServerConfig(served_model_name="m")).allows_any


@pytest.mark.parametrize(
    "host", ["https://example.com", "example.com/", "*", "a b", "", "user@example.com", "a:b"]
)
def test_a_host_must_be_a_name(host: str) -> None:
    with pytest.raises(ConfigError, match="--allow-media-host is"):
        media_policy(ServerConfig(served_model_name="m", allow_media_host=(host,)))
