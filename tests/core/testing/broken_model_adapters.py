"""Model adapters that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter
from llmfw.core.testing import ModelAdapterTests

CONFIG = {
    "model_type": "gpt_neo",
    "vocab_size": 96,
    "hidden_size": 64,
    "num_layers": 4,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 2]],
    "window_size": 5,
    "max_position_embeddings": 64,
}


class GoodAdapter(ModelAdapter):
    """Keeps all promises: what the others are measured by."""

    model_types: Any = ("gpt_neo",)

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        for module in model.modules():
            if hasattr(module, "_attn"):
                self.change(module, attend)

    def change(self, module: Any, attend: Attend) -> None:
        module.layer_idx = module.layer_id

        def attn(query: Any, key: Any, value: Any, mask: Any) -> Any:
            output: Any = self.output(module, query, key, value, attend)
            return output.transpose(1, 2), None

        module._attn = attn

    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        return attend(module, query, key, value, None, scaling=1.0, sliding_window=self.window(module))

    def window(self, module: Any) -> int | None:
        return module.config.window_size if module.attention_type == "local" else None


class NamesTypesInAList(GoodAdapter):
    model_types = ["gpt_neo"]  # noqa: RUF012


class NamesAnotherType(GoodAdapter):
    model_types = ("gpt_neo", "gpt_neox")


class RefusesItsConfigs(GoodAdapter):
    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        return "it is too small"


class ChangesTheConfig(GoodAdapter):
    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        config.window_size = 256


class ForgetsTheScale(GoodAdapter):
    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        return attend(module, query, key, value, None, sliding_window=self.window(module))


class ForgetsWindows(GoodAdapter):
    def window(self, module: Any) -> int | None:
        return None


class WidensWindows(GoodAdapter):
    def window(self, module: Any) -> int | None:
        window = super().window(module)
        return None if window is None else window + 1


class AttendsTwice(GoodAdapter):
    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        super().output(module, query, key, value, attend)
        return super().output(module, query, key, value, attend)


class LeavesTheLastLayer(GoodAdapter):
    def change(self, module: Any, attend: Attend) -> None:
        if module.layer_id < 3:
            super().change(module, attend)


class ComputesTheRowItself(GoodAdapter):
    """Calls attention, and returns what it is for a single sequence."""

    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        super().output(module, query, key, value, attend)
        places = torch.arange(query.shape[2])
        distances = places[:, None] - places
        hidden = (distances < 0) | (distances >= (self.window(module) or 1000))
        weights = (query @ key.transpose(2, 3)).masked_fill(hidden, -torch.inf).softmax(-1)
        return (weights @ value).transpose(1, 2)


class TakesOneTokenForAPrompt(GoodAdapter):
    """A token that is alone in its step has attended to nothing but itself, if it is the first."""

    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        output = super().output(module, query, key, value, attend)
        return value.transpose(1, 2) if query.shape[2] == 1 else output


class CountsPositionsItself(GoodAdapter):
    def adapt(self, model: Any, attend: Attend) -> None:
        super().adapt(model, attend)
        positions = model.transformer.wpe
        table = positions.weight
        positions.forward = lambda ids: table[torch.arange(ids.shape[1])][None]


class MixesNeighbors(GoodAdapter):
    """Adds nothing, times what belongs to the token before."""

    def output(self, module: Any, query: Any, key: Any, value: Any, attend: Attend) -> Any:
        output = super().output(module, query, key, value, attend)
        return output + 0 * output.roll(1, 1)


class AdaptsOneModel(GoodAdapter):
    done = False

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        if not self.done:
            super().adapt(model, attend)
        self.done = True


class KeepsTheFirstModel(GoodAdapter):
    projection: Any = None

    def change(self, module: Any, attend: Attend) -> None:
        super().change(module, attend)
        if module.layer_id == 0:
            self.projection = self.projection or module.out_proj
            module.out_proj.forward = self.projection.__class__.forward.__get__(self.projection)


class AddsBuffers(GoodAdapter):
    def change(self, module: Any, attend: Attend) -> None:
        super().change(module, attend)
        module.register_buffer("places", torch.arange(4))


class RoundsWeights(GoodAdapter):
    def change(self, module: Any, attend: Attend) -> None:
        super().change(module, attend)
        module.v_proj.weight.data.copy_(module.v_proj.weight.data * (1 + 1e-6))


class OfKind(ModelAdapterTests):
    kind: type[ModelAdapter]

    @pytest.fixture
    def adapter(self) -> type[ModelAdapter]:
        return self.kind

    @pytest.fixture
    def configs(self) -> list[dict[str, Any]]:
        return [CONFIG]

    @pytest.fixture
    def dtype(self) -> torch.dtype:
        return torch.float32


def test_class(kind: type[ModelAdapter]) -> Any:
    """Return a test class for an adapter."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodAdapter, *GoodAdapter.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
