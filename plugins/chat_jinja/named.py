"""Chat templates that can be chosen by name, for models without a template: the Jinja files in `templates/`.

Special tokens such as `bos_token` are taken from the model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .template import JinjaChatTemplate

TEMPLATES = Path(__file__).parent / "templates"


class NamedTemplate(JinjaChatTemplate):
    """A template from the folder `templates/`. Ignores the model's own template."""

    file: ClassVar[str]
    conformance: ClassVar[Mapping[str, bool]] = {"has_tools": True, "has_generation_prompt": True}

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        blank = {"bos_token": "", "eos_token": ""}
        super().__init__((TEMPLATES / self.file).read_text("utf-8"), {**blank, **special_tokens})


class ChatML(NamedTemplate):
    """The template `chatml`: <|im_start|>role … <|im_end|>."""

    file = "chatml.jinja"


class Llama3(NamedTemplate):
    """The template `llama-3`: <|start_header_id|>role<|end_header_id|> … <|eot_id|>."""

    file = "llama-3.jinja"


class Mistral(NamedTemplate):
    """The template `mistral`: [INST] … [/INST]."""

    file = "mistral.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_tools": True}


class Gemma(NamedTemplate):
    """The template `gemma`: <start_of_turn>role … <end_of_turn>."""

    file = "gemma.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_generation_prompt": True}


class DeepSeek(NamedTemplate):
    """The template `deepseek`: <｜User｜> … <｜Assistant｜>."""

    file = "deepseek.jinja"
    conformance: ClassVar[Mapping[str, bool]] = {"has_generation_prompt": True}
