"""Calls a logits processor so that its faults end only the requests that use it.

A processor comes from a plugin. A processor is never disabled: without the processor, a request that uses it
would return a different text. See `core.interfaces.logits_processor`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from llmfw.core.interfaces.declared_fields import DeclaredFields
from llmfw.core.interfaces.logits_processor import LogitsProcessor, ProcessedRequest, ProcessedRows
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError

NOT_LOGITS = WrongReturnError("process() left a row with NaN, with infinity, or without an allowed token")


@dataclass(frozen=True, slots=True)
class ChosenProcessor:
    """A logits processor that was built, and its registry entry."""

    entry: Entry
    processor: LogitsProcessor


class IsolatedProcessor:
    """Wraps a logits processor, and records its calls and failures.

    Args:
        chosen: the processor.
        calls: record of the component's calls.
        declared: names of the request fields that the processor may ask for; None: any.

    Attributes:
        name: full name of the processor, "plugin/name".
        needs_tokens: whether it needs the prompt and the tokens generated so far.
    """

    def __init__(
        self, chosen: ChosenProcessor, calls: ComponentCalls, declared: Collection[str] | None = None
    ) -> None:
        self.name = chosen.entry.full_name
        self.needs_tokens = bool(chosen.processor.needs_tokens)
        self._processor = chosen.processor
        self._calls = calls
        self._declared = declared

    def begin(self, request: ProcessedRequest) -> Any:
        """Return the processor's state for a request; None if the request does not use the processor.

        Raises:
            RequestError: the request is invalid.
            ComponentFailedError: the processor failed.
        """
        if self._declared is not None:
            fields = DeclaredFields(request.fields, self._declared)
            request = replace(request, fields=MappingProxyType(fields))  # so that no processor changes it
        return self._calls.call(self._processor.begin, request)

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        """Return the processor's logits for some rows: [R, vocab].

        Args:
            logits: logits before the processor, which it does not change: [R, vocab].

        Raises:
            BaseException: the processor's exception; or WrongReturnError, if the processor does not return
                logits.
        """
        with torch.inference_mode():  # restores the mode, which the processor may leave
            found = self._calls.timed(self._processor.process, logits.clone(), rows)
        check_logits(found, logits)
        return found

    def fail(self, error: BaseException) -> str:
        """Log a failure of `process`; return the error message for the requests that end."""
        raise_if_process_ends(error)
        return str(self._calls.failed(error, "process()"))


def check_logits(found: object, before: torch.Tensor) -> None:
    """Raise WrongReturnError if a processor's result has the wrong type, layout, shape, dtype or device."""
    if not isinstance(found, torch.Tensor):
        raise WrongReturnError(f"process() returned a {type(found).__name__}, not the logits")
    if found.layout != before.layout:
        raise WrongReturnError(f"process() returned logits of the layout {found.layout}; they must be dense")
    given = (list(found.shape), found.dtype, found.device)
    asked = (list(before.shape), before.dtype, before.device)
    if given != asked:
        words = (
            f"{shape} {str(dtype).removeprefix('torch.')} on {device}"
            for shape, dtype, device in (given, asked)
        )
        raise WrongReturnError("process() returned logits of {}; they must be {}".format(*words))


def settle(before: torch.Tensor, after: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits to use after a processor, and whether each row is faulty.

    Forbidden tokens stay forbidden. A row is faulty if the processor has left NaN, infinity or no allowed
    token. A faulty row gets its logits from before the processor. A row that was invalid before the processor
    also keeps those logits, but does not count as faulty. Does not wait for the device.

    Args:
        before, after: logits before and after the processor: [R, vocab].

    Returns:
        Logits: [R, vocab]; and whether each row is faulty, bool: [R].
    """
    after = after.masked_fill(before == float("-inf"), float("-inf"))
    is_good = after.amax(dim=-1).isfinite()  # False with NaN, which amax treats as the largest number
    was_good = before.amax(dim=-1).isfinite()
    return torch.where((was_good & is_good)[:, None], after, before), was_good & ~is_good
