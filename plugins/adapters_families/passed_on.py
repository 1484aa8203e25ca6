"""Adapters of families that call transformers' attention interface, but do not pass keyword arguments on to it."""

from __future__ import annotations

from torch import nn

from llmfw.core import Attend, ModelAdapter

from .small_configs import small_configs


class InterfaceAdapter(ModelAdapter):
    """Leaves the model unchanged: adapted models call the attention interface without llmfw's arguments."""

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Change nothing."""


class StableLMAdapter(InterfaceAdapter):
    """Adapts StableLM."""

    model_types = ("stablelm",)
    conformance = small_configs("stablelm")


class NemotronAdapter(InterfaceAdapter):
    """Adapts Nemotron."""

    model_types = ("nemotron",)
    conformance = small_configs("nemotron")
