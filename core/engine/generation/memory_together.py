"""Checks that the weights of several models fit into one memory, before any of them is read."""

from __future__ import annotations

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.model.device.devices import choose_device, companions, gigabytes, total_memory

from .capacity import static_fraction


def check_together(config: EngineConfig) -> None:
    """Check that an engine's weights fit into memory together with those of other models' engines.

    Stored weights may be smaller than loaded ones, so that the models may not fit even if this check passes.
    Each engine checks again after loading.

    Raises:
        ConfigError: they do not fit.
    """
    place = config.place
    if not place.model:
        return
    device = choose_device(config.device, place)
    sharing = [place.index, *companions(config.device, place)]
    needed, total = sum(place.weights[index] for index in sharing), total_memory(device)
    allowed = static_fraction(config, device) * total
    if needed >= allowed:
        raise ConfigError(
            f"the weights of {len(sharing)} models take {gigabytes(needed)} together, and --mem-fraction-static allows "
            f"{gigabytes(allowed)} of the {gigabytes(total)} of {device}; raise it, or serve fewer models"
        )
