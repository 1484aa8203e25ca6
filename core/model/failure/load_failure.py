"""Explains in one line why a model could not be loaded: which file or which field of its config is wrong."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError
from safetensors import SafetensorError
from transformers.configuration_utils import ALLOWED_LAYER_TYPES

from ..attention.hf_attention import IMPLEMENTATION
from ..files.damaged_files import damaged_safetensors, pickle_failure

LOAD_ERRORS = (OSError, ValueError, ImportError, SafetensorError)
"""Exceptions of transformers whose text explains the reason. For others, the message includes the class."""


def why_not(path: str, hf_config: Any, error: Exception, *, reads_safetensors: bool = True) -> str:
    """Return why a model could not be loaded.

    Names a damaged or unreadable file, if there is one. Otherwise, explains the exception.

    The files are inspected because safetensors reports an unreadable file as missing, and a damaged file
    without its name.

    Args:
        path: a folder, or a hub id.
        hf_config: the model's config.
        error: exception that loading raised.
        reads_safetensors: whether the folder's safetensors files were read.
    """
    if reads_safetensors and (reason := damaged_safetensors(Path(path))):
        return reason
    if isinstance(error, EOFError | UnpicklingError):
        return pickle_failure(error)
    if isinstance(error, KeyError) and error.args == (IMPLEMENTATION,):
        # The architecture has its own table of attention classes instead of the attention interface.
        return f"its type ({hf_config.model_type}) does not use transformers' attention interface"
    if isinstance(error, RuntimeError) and (
        reason := _wrong_factors(hf_config.get_text_config(decoder=True))
    ):
        return reason
    if isinstance(error, KeyError) and (field := _field_with(hf_config.to_dict(), error.args[0])):
        return f"{field} is {error.args[0]!r} in its config, which transformers does not know"
    if isinstance(error, RuntimeError) and "automatic conversion of the weights" in str(error):
        return "its tensors cannot be brought into the layout that the config asks for"
    if isinstance(error, AssertionError) and "Padding_idx" in str(error):
        text_config = hf_config.get_text_config(decoder=True)
        token, size = getattr(text_config, "pad_token_id", None), getattr(text_config, "vocab_size", None)
        return f"pad_token_id is {token!r:.40} in its config; it must be a token below the vocab_size {size}, or null"
    return explained(error)


def _field_with(settings: dict[str, Any], value: Any) -> str | None:
    """Return the dotted name of the config field that has this text; None if no field has it."""
    if not isinstance(value, str):
        return None  # None and 1 are in any config
    for name, found in settings.items():
        if found == value:
            return name
        if isinstance(found, dict) and (inner := _field_with(found, value)):
            return f"{name}.{inner}"
    return None


def _wrong_factors(text_config: Any) -> str | None:
    """Return an error message if a list of rotary factors has a wrong length; None if all are right.

    A list needs one factor for every two rotary dimensions of a head.
    """
    rotary = getattr(text_config, "rope_parameters", None) or {}
    heads = getattr(text_config, "num_attention_heads", 1)
    width = getattr(text_config, "head_dim", None) or text_config.hidden_size // heads
    for where, found in {"": rotary, **rotary}.items():
        for name in ("short_factor", "long_factor") if isinstance(found, dict) else ():
            wanted = int(width * (found.get("partial_rotary_factor") or 1.0)) // 2
            factors = found.get(name)
            if factors is not None and (not isinstance(factors, list) or len(factors) != wanted):
                has = f"{len(factors)} numbers" if isinstance(factors, list) else f"{factors!r:.60}"
                field = ".".join(filter(None, ("rope_parameters", where, name)))
                return (
                    f"{field} has {has} in its config; it must have {wanted}, half the rotary width of a head"
                )
    return None


def _wrong_layer_types(text: str) -> str | None:
    """Explain an error of transformers about a list of layer types. Return None for other errors.

    Args:
        text: transformers' message.
    """
    if found := re.search(r"`num_hidden_layers` \((.*?)\) must be .* of `(\w+)` \((\d+)\)", text):
        return f"{found[2]} has {found[3]} entries in its config, and num_hidden_layers is {found[1]}; correct one of them"
    if found := re.search(r"`(\w+)` entries must be in (\(.*\)) but got (\[.*\])", text):
        allowed, given = ast.literal_eval(found[2]), ast.literal_eval(found[3])
        wrong = next(each for each in given if each not in allowed)
        return f"{found[1]} has {wrong!r:.60} in its config; it must have {', '.join(allowed)}"
    return None


def _missing_field(error: Exception) -> str | None:
    """Explain an exception of transformers about a missing field, or a layer type that the model lacks.

    Returns None if the exception has another cause.
    """
    text = str(error)
    if found := re.search(
        r"Missing required keys in `rope_parameters` for 'rope_type'='(.*?)': \{(.*)\}", text
    ):
        lacking = " and ".join(sorted(re.findall(r"'(\w+)'", found[2])))
        return f"rope_parameters lacks {lacking} in its config, which the rope_type {found[1]!r} needs"
    if found := re.search(r"Could not find a `(\w+)` argument in the config", text):
        return f"{found[1]} is null or absent in its config, and layer_types names layers that need it"
    if isinstance(error, KeyError) and error.args[0] in ALLOWED_LAYER_TYPES:
        return f"layer_types has {error.args[0]!r} in its config, which this type of model does not compute"
    return None


def explained(error: Exception) -> str:
    """Return an explanation of an exception for users, in one line.

    For an unknown exception, returns the first line of its message. Adds the exception's class unless the
    message is clear without it.
    """
    if "trust_remote_code" in str(error):
        return "it brings Python code of its own (auto_map), which llmfw never runs"
    if isinstance(error, StrictDataclassFieldValidationError):
        return _wrong_field(str(error))
    if isinstance(error, StrictDataclassClassValidationError):
        if reason := _wrong_layer_types(" ".join(str(error).split())):
            return reason
        found = re.search(r"for validator '\w+':\s*(?:\w+: )?(.*)", str(error), re.DOTALL)
        return f"its numbers do not fit together: {' '.join((found[1] if found else str(error)).split())}"
    if found := re.search(r"tried to allocate (\d+) bytes|Storage size calculation overflowed", str(error)):
        size = f"{int(found[1]) / 1e9:,.1f} GB" if found[1] else "more memory than can be counted"
        return f"one of its tensors needs {size}, which this machine does not have; check the sizes in its config"
    if reason := _missing_field(error):
        return reason
    text, kind = first_line(error), type(error).__name__
    if isinstance(error, LOAD_ERRORS):
        return text
    return f"{kind if text == kind else f'{kind}: {text}'}; compare its config.json with the original"


def _wrong_field(text: str) -> str:
    """Return an error message about a config field, in one line.

    Args:
        text: transformers' validation message, which has two lines per allowed type.
    """
    field = re.search(r"field '(\w+)'", text)
    value = re.search(r"with value (.*) doesn't match|\(value: (.*?)\)$", text, re.MULTILINE | re.DOTALL)
    types = dict.fromkeys(re.findall(r"expected (?:a |an )?(\w+)", text))
    if field is None or value is None or not types:
        return " ".join(text.split())
    wanted = " or ".join("null" if name == "NoneType" else name for name in types)
    shown = " ".join((value[1] or value[2]).split())
    return f"{field[1]} is {shown:.60} in its config; it must be {wanted}"


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message, or the name of its class if the message is empty.

    If the line ends with a colon, the next line is appended.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
