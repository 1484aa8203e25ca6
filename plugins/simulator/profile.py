"""The cost model of a model's steps, with coefficients measured (`measure`) or computed (`profiles`).

    step = host                          per step
         + points(T)                     matrix products of T tokens: linear interpolation between points
         + per_sequence · S              S sequences
         + per_context · C               keys and values of C tokens are read, over all sequences
         + per_pair · P                  P pairs of tokens

A pair is a new token and a token that it attends to. Pairs are counted only in sequences with several new
tokens. With `overlap`, the host works while the device computes, and a step takes the longer of the host time
and the device time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from .errors import SimulatorError

Ints = npt.NDArray[np.int64]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_Tokens = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The coefficients of the cost model. All times are in seconds.

    Attributes:
        name: name of the model and machine, for tables.
        about: origin of the profile.
        host: host time of each step, for scheduling, launching and sampling.
        points: (tokens, seconds) of the matrix products, by ascending tokens; extrapolated beyond the last
            point.
        per_sequence, per_context, per_pair: see the formula in the module's docstring.
        per_request: time that each request takes in HTTP and the tokenizer, before it reaches the engine and
            after its first token.
        overlap: whether each step is planned and launched while the previous one runs.
    """

    name: str
    about: str = ""
    host: _Seconds
    points: list[tuple[_Tokens, _Seconds]]
    per_sequence: _Seconds = 0.0
    per_context: _Seconds = 0.0
    per_pair: _Seconds = 0.0
    per_request: _Seconds = 0.0
    overlap: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if there are fewer than two points, or their tokens do not ascend."""
        tokens = [point[0] for point in self.points]
        if len(tokens) < 2 or sorted(set(tokens)) != tokens:
            raise ValueError("points must be at least two, by ascending tokens")

    def step_seconds(self, starts: Ints, counts: Ints) -> float:
        """Return the time of a step in which each sequence computes the tokens [start, start + count)."""
        num_tokens = int(counts.sum())
        pairs = 0.0
        if num_tokens > len(counts):
            several = counts > 1
            pairs = float((counts * (starts + (counts + 1) / 2))[several].sum())
        return self._seconds(num_tokens, len(counts), float(starts.sum()) + num_tokens, pairs)

    def alone_seconds(self, prompt_len: int, output_len: int, chunk: int) -> float:
        """Return the time that a request takes on an idle machine with an empty cache."""
        starts = np.arange(0, prompt_len, chunk)
        counts = np.minimum(chunk, prompt_len - starts)
        prefill = sum(self.step_seconds(starts[i : i + 1], counts[i : i + 1]) for i in range(len(starts)))
        middle = prompt_len + output_len / 2  # mean context: the context grows by one token per step
        return self.per_request + prefill + (output_len - 1) * self._seconds(1, 1, middle, 0.0)

    def _seconds(self, num_tokens: int, num_sequences: int, context: float, pairs: float) -> float:
        device = (
            self._products(num_tokens)
            + self.per_sequence * num_sequences
            + self.per_context * context
            + self.per_pair * pairs
        )
        return max(self.host, device) if self.overlap else self.host + device

    def _products(self, num_tokens: int) -> float:
        """Return the seconds of the matrix products for `num_tokens` tokens."""
        points = self.points
        place = 1
        while place < len(points) - 1 and points[place][0] < num_tokens:
            place += 1
        (low, fast), (high, slow) = points[place - 1], points[place]
        return max(0.0, fast + (slow - fast) * (num_tokens - low) / (high - low))


def load_profile(path: Path) -> Profile:
    """Read a profile from a JSON file.

    Raises:
        SimulatorError: the file cannot be read, or is not a profile.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise SimulatorError(f"profile {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise SimulatorError(f"profile {path}: {error}") from error


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile to a JSON file.

    Raises:
        SimulatorError: the file cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")
    except OSError as error:
        raise SimulatorError(f"profile {path} cannot be written: {error.strerror}") from error
