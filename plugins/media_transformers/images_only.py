"""Loads transformers' processor of a model, for text and images only.

A video processor needs torchvision even if no request has a video. So the processor is built without its
video part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.models.auto import processing_auto
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.processing_utils import ProcessorMixin

from llmfw.core import ModelError

from .missing_packages import without_number_words, without_torchvision

NAMING_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Files that may name the class of the processor."""


def load_processor(folder: str, model_type: str) -> Any:
    """Return a model's processor.

    Raises:
        ModelError: transformers has no image processor for the model, or the processor cannot be built.
    """
    name = _named(Path(folder)) or processing_auto.PROCESSOR_MAPPING_NAMES.get(model_type)
    if name is None:
        raise ModelError(
            f"transformers has no processor of images for models of the type {model_type}; serve text alone"
        )
    found = processing_auto.processor_class_from_name(name)
    if getattr(found, "is_dummy", False):
        found = without_torchvision(name)
    if found is None or not issubclass(found, ProcessorMixin):
        raise ModelError(
            f"transformers' {name} cannot be used; it may need torchvision, which llmfw does not"
        )
    try:
        with without_number_words(found):
            return _without_videos(found).from_pretrained(folder, local_files_only=True)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"the model's {name} cannot be built: {lines[0]}") from error


def _named(folder: Path) -> str | None:
    """Return the name of the processor class in a model's files; None if no file names a class."""
    for name in NAMING_FILES:
        path = folder / name
        if path.is_file():
            found = json.loads(path.read_text("utf-8")).get("processor_class")
            if isinstance(found, str):
                return found
    return None


def _without_videos(found: type[ProcessorMixin]) -> Any:
    """Return a subclass of a processor that builds only the tokenizer and the image processor."""

    class ImagesOnly(found):  # type: ignore[misc]
        @classmethod
        def _get_arguments_from_pretrained(
            cls, path: str, processor_dict: object = None, **kwargs: Any
        ) -> list[Any]:
            loaders = {"image_processor": AutoImageProcessor, "tokenizer": AutoTokenizer}
            return [
                loaders[name].from_pretrained(path, **kwargs) if name in loaders else None
                for name in cls.get_attributes()
            ]

        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            if argument is None:
                return None
            return super().check_argument_for_proper_class(argument_name, argument)

    ImagesOnly.__name__ = ImagesOnly.__qualname__ = found.__name__
    return ImagesOnly
