"""Builds the native libraries that a model will probably need, before torch is imported.

A wrong guess costs only time.
"""

from __future__ import annotations

import json
from pathlib import Path

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.quantization.code_format import FORMATS

from .build import BuildError
from .cpu import has_fast_bfloat16
from .libraries import Scalar, build, build_quantized

SCALARS = {"float32": Scalar.FLOAT32, "bfloat16": Scalar.BFLOAT16, "float16": Scalar.FLOAT16}
ACCELERATORS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Device files that exist if torch may find a GPU."""


def prepare(config: EngineConfig) -> None:
    """Build the libraries that an engine with this config will probably load.

    Ignores build errors; the engine reports them when it loads the libraries.
    """
    scalar = probable_scalar(config)
    if scalar is None:
        return
    try:
        build(scalar)
        if (config.quantization or "").rpartition("/")[2] in FORMATS and scalar is not Scalar.FLOAT16:
            build_quantized(scalar)
    except BuildError:
        return


def probable_scalar(config: EngineConfig) -> Scalar | None:
    """Return the dtype in which native code will probably compute the model; None if it will not be used."""
    has_gpu = any(path.exists() for path in ACCELERATORS)
    if config.device != "cpu" and (config.device != "auto" or has_gpu):
        return None
    model = Path(config.model)
    if config.task in ("embed", "classify") or (config.task == "auto" and (model / "modules.json").exists()):
        return None
    if config.dtype != "auto":
        return SCALARS.get(config.dtype)
    kept = _dtype_of(model) if model.is_dir() else "bfloat16"
    return Scalar.BFLOAT16 if kept in ("bfloat16", "float16") and has_fast_bfloat16() else Scalar.FLOAT32


def _dtype_of(model: Path) -> str | None:
    """Return the dtype in a model's config.json, looked up as transformers does; None if there is none."""
    path = model / "config.json"
    try:
        config = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):  # loading the model reports the error
        return None
    for part in (config.get("text_config"), config) if isinstance(config, dict) else ():
        if isinstance(part, dict) and (found := part.get("dtype") or part.get("torch_dtype")):
            return str(found)
    return None
