"""Logits processors for tests of the engine: one whose choice depends on everything it may, and one with faults."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from llmfw.core import LogitsProcessor, ProcessedRequest, ProcessedRows, RequestError


class Steering(LogitsProcessor):
    """Raises the logit of a token that depends on all tokens so far, the prompt's length and a random number.

    Attributes:
        num_rows: number of rows of each call so far.
    """

    needs_tokens = True
    num_rows: ClassVar[list[int]] = []

    def begin(self, request: ProcessedRequest) -> float | None:
        if request.fields.get("steer") == -1:
            raise RequestError("steer is -1; it must be 0 or more", param="steer")
        return request.fields.get("steer")

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        self.num_rows.append(len(rows.states))
        tokens = rows.tokens()
        assert [(row >= 0).sum() for row in tokens] == rows.positions.tolist()
        factors = torch.arange(1, tokens.shape[1] + 1)
        amounts, prompt_lens = rows.send(np.array(rows.states, dtype=np.float32), rows.prompt_lens)
        place = (tokens.clamp_min(0) * factors).sum(1) + prompt_lens + (rows.uniform() * 5).long()
        logits[torch.arange(len(logits)), place % logits.shape[1]] += amounts
        return logits


class Faulty(LogitsProcessor):
    """Does what the field "fault" of a row says, and nothing to rows whose field is "none".

    Attributes:
        left: modes of torch that were entered and not left. To drop one changes the mode.
    """

    left: ClassVar[list[Any]] = []

    def begin(self, request: ProcessedRequest) -> Any:
        if request.fields.get("fault") == "begin":
            raise OSError("no disk")
        return request.fields.get("fault")

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> Any:
        if "raises" in rows.states:
            raise ZeroDivisionError("a defect")
        if "raises with others" in rows.states and len(rows.states) > 1:
            raise ZeroDivisionError("a defect")
        if "tokens" in rows.states:
            rows.tokens()
        if "nothing" in rows.states:
            return None
        if "sparse" in rows.states:
            return logits.to_sparse()
        if "leaves inference mode" in rows.states:
            self.left.append(torch.inference_mode(False))
            self.left[-1].__enter__()
        if "too wide" in rows.states:
            return torch.cat([logits, logits], dim=1)
        if "allows" in rows.states:
            logits.nan_to_num_(neginf=50.0)
        for place, state in enumerate(rows.states):
            value = {"nan": torch.nan, "infinity": torch.inf, "forbids": -torch.inf}.get(state)
            if value is not None:
                logits[place, 3 if state != "forbids" else slice(None)] = value
        return logits
