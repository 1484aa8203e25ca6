"""What a mask's rule amounts to, and which rule a layer uses."""

from __future__ import annotations

import pytest
import torch
from transformers import masking_utils as masks

from llmfw.core.model.attention.mask_rules import MaskFunction, MaskMarkers, window_of

NO_PADDING = torch.zeros(1, dtype=torch.long)
NO_IMAGE = torch.full((1, 4), -1)


@pytest.mark.parametrize("window", [1, 2, 24, 4095, 4096, 131_072])
def test_the_window_of_a_sliding_mask_is_found(window: int) -> None:
    assert window_of(masks.sliding_window_causal_mask_function(window)) == window


def test_a_causal_mask_has_no_window() -> None:
    assert window_of(masks.causal_mask_function) is None


@pytest.mark.parametrize(
    "rule",
    [
        masks.bidirectional_mask_function,
        masks.chunked_causal_mask_function(8192, NO_PADDING),
        masks.chunked_causal_mask_function(7, NO_PADDING),
        masks.sliding_window_bidirectional_mask_function(24),
        masks.sliding_window_causal_mask_function(0),
    ],
)
def test_any_other_mask_is_refused(rule: MaskFunction) -> None:
    with pytest.raises(ValueError, match="neither causal nor a sliding window"):
        window_of(rule)


def test_image_mask_rules_are_ignored_without_images() -> None:
    """transformers joins it to the mask of Gemma 4, and looks tokens up in a table as long as the row."""
    for rule, window in (
        (masks.causal_mask_function, None),
        (masks.sliding_window_causal_mask_function(24), 24),
    ):
        assert window_of(masks.or_masks(rule, masks.blockwise_overlay(NO_IMAGE))) == window


def test_image_mask_rules_count_with_images() -> None:
    image = torch.tensor([[-1, 0, 0, -1]])
    with pytest.raises(IndexError):
        window_of(masks.or_masks(masks.causal_mask_function, masks.blockwise_overlay(image)))


def test_slices_of_a_marker_keep_its_rule() -> None:
    markers = MaskMarkers()
    rules = [masks.causal_mask_function, masks.sliding_window_causal_mask_function(8)]
    made = [markers.mark(rule, 4, 4, torch.float32, "cpu") for rule in rules]
    assert [markers.rule_of(marker) for marker in made] == rules
    assert markers.rule_of(made[1][:, :, :, :2]) is rules[1]
    assert markers.rule_of(made[1] + 1) is None
