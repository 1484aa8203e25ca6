"""Chat templates by name, for models without one: Jinja files in this folder.

Special tokens such as `bos_token` are still the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .template import JinjaChatTemplate

TEMPLATES = Path(__file__).parent / "templates"


class NamedTemplate(JinjaChatTemplate):
    """A template of this folder; the model's own is ignored."""

    file: ClassVar[str]

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        blank = {"bos_token": "", "eos_token": ""}
        super().__init__((TEMPLATES / self.file).read_text("utf-8"), {**blank, **special_tokens})


class ChatML(NamedTemplate):
    """<|im_start|>role … <|im_end|>."""

    file = "chatml.jinja"


class Llama3(NamedTemplate):
    """<|start_header_id|>role<|end_header_id|> … <|eot_id|>."""

    file = "llama-3.jinja"


class Mistral(NamedTemplate):
    """[INST] … [/INST]."""

    file = "mistral.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_tools": True}


class Gemma(NamedTemplate):
    """<start_of_turn>role … <end_of_turn>."""

    file = "gemma.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_generation_prompt": True}


class DeepSeek(NamedTemplate):
    """<｜User｜> … <｜Assistant｜>."""

    file = "deepseek.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_generation_prompt": True}
