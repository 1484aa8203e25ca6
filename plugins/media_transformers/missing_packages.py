"""Loads processors of transformers that ask for packages which images do not need.

- Pixtral's processor imports torchvision for one function, which transformers also has without torchvision, next to
  its image processor for Pillow.
- SmolVLM's processor spells numbers with num2words, in prompts with videos alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from transformers.models.auto import processing_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

_MODELS = "transformers.models"


def without_torchvision(name: str) -> Any:
    """Return a processor class whose module imports with the image processor for Pillow; None if there is none.

    Args:
        name: name of the class.
    """
    types = [key for key, names in processing_auto.PROCESSOR_MAPPING_NAMES.items() if name in names]
    for module in dict.fromkeys(
        [name.removesuffix("Processor").lower(), *map(model_type_to_module_name, types)]
    ):
        try:
            for_pillow = importlib.import_module(f"{_MODELS}.{module}.image_processing_pil_{module}")
            with _in_place_of(f"{_MODELS}.{module}.image_processing_{module}", for_pillow):
                found = importlib.import_module(f"{_MODELS}.{module}.processing_{module}")
        except ImportError:
            continue
        if hasattr(found, name):
            return getattr(found, name)
    return None


@contextmanager
def without_number_words(processor: type) -> Iterator[None]:
    """Within the block, let a processor be built although num2words is not installed."""
    module = sys.modules[processor.__module__]
    if getattr(module, "num2words", True) is not None:
        yield
        return
    module.num2words = _spell  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.num2words = None  # type: ignore[attr-defined]


@contextmanager
def _in_place_of(name: str, module: ModuleType) -> Iterator[None]:
    """Within the block, let imports of a module get another one, if the module was not imported before."""
    is_absent = name not in sys.modules
    if is_absent:
        sys.modules[name] = module
    try:
        yield
    finally:
        if is_absent:
            del sys.modules[name]


def _spell(number: int) -> str:
    raise NotImplementedError(f"{number} would be spelled in a prompt with a video; llmfw serves none")
