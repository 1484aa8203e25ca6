"""Checks the arguments that a plugin passes to `register`, so that a wrong registration is reported early."""

from __future__ import annotations

import re
from typing import Any

from llmfw.core.base.errors import PluginError
from llmfw.core.base.suggestion import nearest

from .hookspecs import HOOK_NAMES, HookSpecs

RESERVED_NAMES = ("auto", "none")
"""Words of options such as `--attention auto`, which therefore cannot be names of components."""

GETS_FIELDS = ("policy", "drafter", "observer", "logits_processor")
"""Kinds of components that get the values of request fields."""

CHOSEN_BY_DEVICE = ("attention", "module_pass", "token_sampler")
"""Kinds of components that "auto" chooses by device."""

_DEVICE = re.compile(r"[a-z]+")
_PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_FIELD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def check_component(
    kind: str, name: object, path: object, *, summary: object, needs: Any, rank: object, prepare: object
) -> None:
    """Raise PluginError if an argument of a component's registration is not valid."""
    if not (isinstance(name, str) and _PART_NAME.fullmatch(name)):
        raise PluginError(
            f"{kind} name {name!r} is not made of letters, digits, '.', '_' and '-'; choose another"
        )
    if name in RESERVED_NAMES:
        raise PluginError(f"{kind} name {name!r} is a word of the options of llmfw; choose another name")
    check_path(path)
    if prepare != "":
        check_path(prepare)
    if not (isinstance(summary, str) and summary.isprintable()):
        raise PluginError(f"summary of {kind} {name!r} is {summary!r}; it must be one line of printable text")
    if type(rank) is not int:
        raise PluginError(f"rank of {kind} {name!r} is {rank!r}; it must be a whole number")
    _check_needs(kind, name, needs)


def check_needs_fields(kind: str, name: str, needs_fields: Any) -> None:
    """Raise PluginError if a component's registration names request fields that cannot exist, or if its kind
    gets no request fields."""
    what = f"needs_fields of {kind} {name!r}"
    if isinstance(needs_fields, str) or not isinstance(needs_fields, list | tuple | set | frozenset):
        raise PluginError(f"{what} is {needs_fields!r}; it must be a sequence of names")
    if needs_fields and kind not in GETS_FIELDS:
        raise PluginError(f"{what} is {needs_fields!r}; only {', '.join(GETS_FIELDS)} get request fields")
    for field in needs_fields:
        if not (isinstance(field, str) and _FIELD.fullmatch(field.rpartition("/")[2])):
            raise PluginError(
                f"{what} has {field!r}, which is not the name of a request field; use letters, digits and '_'"
            )


def check_devices(kind: str, name: str, devices: Any) -> None:
    """Raise PluginError if a component's registration names devices in a wrong form, or if its kind is not
    chosen by device."""
    what = f"devices of {kind} {name!r}"
    if isinstance(devices, str) or not isinstance(devices, list | tuple | set | frozenset):
        raise PluginError(f"{what} is {devices!r}; it must be a sequence of names")
    for device in devices:
        if not (isinstance(device, str) and _DEVICE.fullmatch(device)):
            raise PluginError(
                f"{what} has {device!r}, which is not the type of a device; write it as in torch.device, such as 'cuda'"
            )
    if devices and kind not in CHOSEN_BY_DEVICE:
        raise PluginError(f"{what} is {devices!r}; only {', '.join(CHOSEN_BY_DEVICE)} are chosen by device")


def check_prefill_rank(kind: str, name: str, prefill_rank: object) -> None:
    """Raise PluginError if the rank for prompts is not a number, or if components of the kind compute no prompts."""
    what = f"prefill_rank of {kind} {name!r}"
    if prefill_rank is None:
        return
    if type(prefill_rank) is not int:
        raise PluginError(f"{what} is {prefill_rank!r}; it must be a whole number")
    if kind != "attention":
        raise PluginError(f"{what} is {prefill_rank}; only attention has one")


def is_field_name(name: str) -> bool:
    """Return whether a request field may have this name: letters, digits and '_', a letter first."""
    return _FIELD.fullmatch(name) is not None


def _check_needs(kind: str, name: str, needs: Any) -> None:
    what = f"needs of {kind} {name!r}"
    if isinstance(needs, str):
        raise PluginError(f"{what} is the text {needs!r}; it must be a sequence of names")
    if not isinstance(needs, list | tuple | set | frozenset):
        raise PluginError(f"{what} is {needs!r}; it must be a sequence of names")
    for module in needs:
        if not (isinstance(module, str) and _MODULE.fullmatch(module)):
            raise PluginError(
                f"{what} has {module!r}, which is not the name of a module; write it as in an import"
            )


def check_path(path: object) -> None:
    """Raise PluginError if `path` is not an import path."""
    if not (isinstance(path, str) and _PATH.fullmatch(path)):
        raise PluginError(f"{path!r} is not an import path; write it as 'package.module:Class'")


def meant_hook(name: str) -> str | None:
    """Return the hook that an author probably meant by the unknown name; None if no hook is similar.

    For example, `register_policy` means `register_schedule_policies`, whose components are of the kind
    "policy".
    """
    hooks = {hook: hook for hook in vars(HookSpecs) if hook.startswith("register_")}
    by_kind = {f"register_{kind}": hook for kind, hook in HOOK_NAMES.items()}
    plural = {(each[:-1] + "ies" if each.endswith("y") else each + "s"): by_kind[each] for each in by_kind}
    known = by_kind | plural | hooks
    found = nearest(name, known)
    return None if found is None else known[found]
