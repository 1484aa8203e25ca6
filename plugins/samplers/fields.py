"""The request fields of `dry` and `xtc`, with the names and bounds that llama.cpp's server has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from llmfw.core import RequestField

MAX_BREAKERS, MAX_BREAKER_LENGTH = 32, 64

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Breaker = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BREAKER_LENGTH)]


class XTCProbability(RequestField):
    """Probability, 0 to 1, with which `xtc` leaves out tokens at a position. 0: never."""

    value_type = Share
    conformance: ClassVar = {"accepted": [0, 0.5, 1], "refused": [-0.1, 1.5, "0.5", True, [0.5]]}


class XTCThreshold(RequestField):
    """Least probability, 0 to 1, of the tokens that `xtc` may leave out; by default 0.1.

    A threshold above 0.5 leaves out no token.
    """

    value_type = Share
    conformance: ClassVar = {"accepted": [0, 0.1, 1], "refused": [-0.1, 1.5, "0.1", True]}


class DRYMultiplier(RequestField):
    """Penalty of `dry`, subtracted from the logit, for a repetition of `dry_allowed_length` tokens. 0: none."""

    value_type = Annotated[float, msgspec.Meta(ge=0, le=100)]
    conformance: ClassVar = {"accepted": [0, 0.8, 100], "refused": [-0.1, 101, "1", True]}


class DRYBase(RequestField):
    """Factor, 1 to 100, by which the penalty of `dry` grows with each further token; by default 1.75."""

    value_type = Annotated[float, msgspec.Meta(ge=1, le=100)]
    conformance: ClassVar = {"accepted": [1, 1.75, 100], "refused": [0.9, 101, "2", True]}


class DRYAllowedLength(RequestField):
    """Least length of a repetition, in tokens, for a penalty of `dry` on the next token; by default 2."""

    value_type = Annotated[int, msgspec.Meta(ge=1, le=1000)]
    conformance: ClassVar = {"accepted": [1, 2, 1000], "refused": [0, 1001, 1.5, "2", True]}


class DRYPenaltyLastN(RequestField):
    """Number of last tokens in which `dry` looks for repetitions. -1, the default: all. 0: no penalty."""

    value_type = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    conformance: ClassVar = {"accepted": [-1, 0, 512], "refused": [-2, 2**31, 1.5, "2", True]}


class DRYSequenceBreakers(RequestField):
    """Texts that end a repetition. By default a line break, ":", a quotation mark and "*".

    The value is a list of texts, or, as in text-generation-webui, the list as JSON text.
    """

    value_type = list[Breaker] | Annotated[str, msgspec.Meta(max_length=8192)]
    conformance: ClassVar = {
        "accepted": [[], ["\n", ":"], '["\\n", "*"]'],
        "refused": [[""], [1], "*", '{"a": 1}', ["x"] * (MAX_BREAKERS + 1), ["x" * (MAX_BREAKER_LENGTH + 1)]],
    }

    def validate(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value, type=list[Breaker])
            except msgspec.MsgspecError as error:
                raise ValueError(f"it must be a list of texts, or one as JSON text ({error})") from error
        if len(value) > MAX_BREAKERS:
            raise ValueError(f"it has {len(value)} texts, and at most {MAX_BREAKERS} are allowed")
        return value
