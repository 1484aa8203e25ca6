"""Reads the number of a decoder's layers from its config."""

from __future__ import annotations

from typing import Any


def layer_count_name(text_config: Any) -> str:
    """Return the name of the field that has the number of a decoder's layers.

    In configs of BART and its relatives, `num_hidden_layers` is the number of layers of the encoder.
    """
    return "decoder_layers" if hasattr(text_config, "decoder_layers") else "num_hidden_layers"
