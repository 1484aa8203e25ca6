"""Module passes that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.testing.module_pass import ModulePassTests


class Norm(nn.Module):
    """An RMS norm by torch."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps: float = getattr(norm, "variance_epsilon", 0.0) or norm.eps
        self.gain = float(type(norm).__name__.startswith("Gemma"))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        x = hidden.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * (self.gain + self.weight.float())).to(hidden.dtype)


class GoodPass(ModulePass):
    """Keeps all promises: what the others are measured by."""

    kind: Any = Norm

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        return None if dtype == torch.float32 else "it is for float32"

    def is_known(self, module: nn.Module) -> bool:
        hooks = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        named = type(module).__name__.endswith("RMSNorm")
        return named and type(module).__module__.startswith("transformers.") and not hooks

    def apply(self, model: nn.Module) -> int:
        count = 0
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if self.is_known(child):
                    setattr(module, name, self.kind(child))
                    count += 1
        return count


class ForgetsEps(GoodPass):
    class kind(Norm):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.eps = 0.0
            return super().forward(hidden)


class IgnoresGemmaOffset(GoodPass):
    class kind(Norm):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.gain = 0.0
            return super().forward(hidden)


class CachesLastOutput(GoodPass):
    class kind(Norm):  # noqa: N801
        kept: torch.Tensor | None = None

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            if self.kept is None or self.kept.shape != hidden.shape:
                self.kept = super().forward(hidden)
            return self.kept


class FailsInLongSteps(GoodPass):
    """Leaves tokens from the 301st of a step on as they are."""

    class kind(Norm):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return torch.cat([super().forward(hidden[:, :300]), hidden[:, 300:]], dim=1)


class ReturnsZero(GoodPass):
    def apply(self, model: nn.Module) -> int:
        super().apply(model)
        return 0


class NotIdempotent(GoodPass):
    def is_known(self, module: nn.Module) -> bool:
        return super().is_known(module) or isinstance(module, Norm)


class RenamesWeights(GoodPass):
    class kind(Norm):  # noqa: N801
        def __init__(self, norm: Any) -> None:
            super().__init__(norm)
            self.scale = self.weight
            del self.weight

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return nn.functional.rms_norm(hidden, hidden.shape[-1:], self.scale, self.eps)


class MatchesByName(GoodPass):
    def is_known(self, module: nn.Module) -> bool:
        return type(module).__name__.endswith("RMSNorm")


class ForgetsHooks(GoodPass):
    def is_known(self, module: nn.Module) -> bool:
        kind = type(module)
        return kind.__name__.endswith("RMSNorm") and kind.__module__.startswith("transformers.")


class OfKind(ModulePassTests):
    kind: type[ModulePass]

    @pytest.fixture
    def module_pass(self) -> type[ModulePass]:
        return self.kind

    @pytest.fixture
    def dtype(self) -> torch.dtype:
        return torch.float32


def test_class(kind: type[ModulePass]) -> Any:
    """Return a test class for a pass."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodPass, *GoodPass.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
