"""The head is computed for the tokens that are asked for alone, in every architecture that is served."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from .tiny_models import SERVABLE, SIZES


@pytest.mark.parametrize(("config_class", "changes"), SERVABLE.values(), ids=SERVABLE)
def test_the_head_computes_only_sampled_rows(config_class: str, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    settings = {name: value for name, value in (SIZES | changes).items() if value is not None}
    model = AutoModelForCausalLM.from_config(getattr(transformers, config_class)(**settings)).eval()
    assert "logits_to_keep" in inspect.signature(model.forward).parameters
    ids, places, rows = torch.arange(6)[None], torch.tensor([4, 1]), []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, args: rows.append(args[0].shape[1]))
    with torch.inference_mode():
        some = model(input_ids=ids, logits_to_keep=places, use_cache=False).logits
        whole = model(input_ids=ids, use_cache=False).logits
    assert rows == [2, 6]
    torch.testing.assert_close(some, whole[:, places])
