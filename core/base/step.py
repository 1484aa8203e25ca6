"""One engine step as plain data: what an executor must compute, and what it returns.

    scheduler ── StepInput ──►  executor   forward pass
              ── TokenMasks ─►             sampling
              ◄─ StepOutput ──

These messages consist mainly of arrays. `encode` and `decode` convert them for other processes and for files.
An executor keeps a state that later steps refer to by row: the page table, the sampling parameters, and the
last sampled token.

Shapes: a step computes T tokens of B sequences, and samples S tokens. All integers are int64 unless noted.
Tokens of one sequence are adjacent, and sequences with one token come first.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from .media import MediaArray
from .request import SamplingParams, TokenLogprob

Ints = npt.NDArray[np.int64]
Pages = npt.NDArray[np.int32]
Words = npt.NDArray[np.int32]
TokenIds = npt.NDArray[np.int32]

SampledTokens = tuple[Ints, Ints, Ints]
"""For each sampled token: index, among the T tokens, of the token that precedes it; its row of the page table;
and its position in its sequence: [S] each."""

NOT_IN_FLIGHT = -1
"""Entry of `StepInput.sources` for a token whose id is known."""

NO_INTS: Ints = np.empty(0, dtype=np.int64)
NO_PAGES: Pages = np.empty(0, dtype=np.int32)


class AskedProcessors(msgspec.Struct, frozen=True):
    """The logits processors that a request asks for.

    Attributes:
        names: their full names, "plugin/name".
        need_tokens: whether any of them needs the tokens so far.
    """

    names: tuple[str, ...] = ()
    need_tokens: bool = False


NO_PROCESSORS = AskedProcessors()


class RowStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sequence that gets a row of the page table.

    These attributes apply until another sequence gets the row.

    Attributes:
        row: row of the page table.
        prompt_len: number of prompt tokens.
        sampling: sampling parameters of the sequence; `seed` is set.
        stop_token_ids: tokens that end the sequence, ascending.
        logprobs: number of most likely tokens to report with the log probability of each sampled token; None:
            report none.
        prompt_logprobs: as `logprobs`, but for the tokens of the prompt.
        constrained_logprobs: whether `logprobs` are computed from the adjusted and masked logits.
        logprob_token_ids: tokens whose log probabilities to report, too, for the position of each sampled
            token.
        prompt_logprob_token_ids: as `logprob_token_ids`, but for the positions of the prompt's tokens.
        processors: logits processors that the sequence asks for.
        fields: values of the request's fields (see `Request.fields`), if it asks for processors.
    """

    row: int
    prompt_len: int
    sampling: SamplingParams
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    constrained_logprobs: bool = False
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprob_token_ids: tuple[int, ...] = ()
    processors: AskedProcessors = NO_PROCESSORS
    fields: dict[str, Any] = {}


class RowCounts(msgspec.Struct, frozen=True):
    """Token counts of a sequence with penalties. They replace the executor's own counts for the row.

    Sent when the sequence gets a row, and when tokens were appended without sampling.

    Attributes:
        row: row of the page table.
        token_ids: distinct tokens to penalize: [N].
        counts: number of times that each token was generated: [N].
    """

    row: int
    token_ids: Ints
    counts: Ints


class RowTokens(msgspec.Struct, frozen=True):
    """All tokens so far of a sequence whose logits processor needs them.

    Sent when the sequence gets a row, and when tokens were appended without sampling.

    Attributes:
        row: row of the page table.
        token_ids: tokens of the prompt and the output, int32: [N].
    """

    row: int
    token_ids: TokenIds


class ScoredPrompt(msgspec.Struct, frozen=True):
    """Prompt tokens whose log probabilities a request asks for.

    Attributes:
        row: row of the page table.
        first: index, among the T tokens, of the token before `token_ids[0]`.
        token_ids: the prompt tokens, adjacent: [P].
    """

    row: int
    first: int
    token_ids: Ints


class StateCopies(msgspec.Struct, frozen=True, omit_defaults=True):
    """Copies of states in a step of a model whose layers keep states (see `StateStorage`).

    A slot is the row of a running sequence, or a slot beyond all rows, which holds a snapshot.

    Attributes:
        sources, targets: slots to copy before the forward pass, one copy after another: [N].
        places: index, among the B sequences, of each sequence whose state is copied during the forward pass,
            ascending: [C].
        positions: position at which each of these states is copied: after the tokens before it, which are
            computed by then; ascending for a sequence: [C].
        slots: slot to which each of these states is copied: [C].
    """

    sources: Ints = NO_INTS
    targets: Ints = NO_INTS
    places: Ints = NO_INTS
    positions: Ints = NO_INTS
    slots: Ints = NO_INTS


NO_COPIES = StateCopies()


class ImageInput(msgspec.Struct, frozen=True):
    """An image that the executor must encode, and keep until a step drops it.

    Attributes:
        key: identifies the image (see `MediaSpan`).
        num_rows: number of rows that the encoder computes.
        tensors: what the encoder reads, by the name of its argument.
    """

    key: bytes
    num_rows: int
    tensors: dict[str, MediaArray]


class ImagePart(msgspec.Struct, frozen=True):
    """Tokens of a step whose embeddings are rows of an encoded image.

    Attributes:
        key: key of the image, which this step or an earlier one has encoded.
        places: indices of the tokens, among the T tokens of the step: [N].
        rows: row of the encoder's output for each of them: [N].
    """

    key: bytes
    places: Ints
    rows: Ints


class StepImages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Images in a step.

    Attributes:
        dropped: keys of encoded images to drop first.
        encoded: images to encode before the forward pass.
        parts: where the step's tokens take encoded images.
    """

    dropped: tuple[bytes, ...] = ()
    encoded: tuple[ImageInput, ...] = ()
    parts: tuple[ImagePart, ...] = ()


NO_IMAGES = StepImages()


class StepInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Input of one step.

    Attributes:
        tokens: token ids; 0 for tokens in flight: [T].
        sources: for a token in flight, the page table row of the sequence for which it was sampled;
            NOT_IN_FLIGHT for other tokens: [T].
        rows: each sequence's row of the page table: [B].
        starts: position, in its sequence, of each sequence's first token in this step: [B].
        counts: number of tokens of each sequence in this step: [B].
        num_sampled: number of tokens to sample for each sequence: [B]. If n, one token is sampled after each
            of the sequence's last n tokens.
        num_single: number of sequences with one token in this step; they come first.
        num_sampling: number of sequences for which tokens are sampled.
        page_places: entries of the page table that change before this step, as row * width + column: [N].
        pages: new values of these entries, int32: [N].
        row_starts: sequences that get a row in this step.
        row_counts: new token counts of sequences with penalties.
        scored: prompt tokens whose log probabilities must be computed.
        row_tokens: known tokens of sequences with logits processors.
        states: copies of states.
        adapters: number of each sequence's adapter slot, from 1, and 0 for a sequence without an adapter:
            [B]; empty: no sequence has one.
        images: images in the step.
        rotary: rotary positions of the tokens, on three axes, for models that count images' positions so: [3,
            T]; empty: they are `positions`.
        ends: position after the last token that each token attends to: [T]; empty: each token attends to no
            later token.
    """

    tokens: Ints
    sources: Ints
    rows: Ints
    starts: Ints
    counts: Ints
    num_sampled: Ints
    num_single: int
    num_sampling: int
    page_places: Ints = NO_INTS
    pages: Pages = NO_PAGES
    row_starts: tuple[RowStart, ...] = ()
    row_counts: tuple[RowCounts, ...] = ()
    scored: tuple[ScoredPrompt, ...] = ()
    row_tokens: tuple[RowTokens, ...] = ()
    states: StateCopies = NO_COPIES
    adapters: Ints = NO_INTS
    images: StepImages = NO_IMAGES
    rotary: Ints = NO_INTS
    ends: Ints = NO_INTS

    @property
    def num_tokens(self) -> int:
        """Number of tokens computed in this step: T."""
        return len(self.tokens)

    @property
    def is_decode(self) -> bool:
        """Whether each sequence computes one token and samples one."""
        return self.num_single == self.num_sampling == len(self.rows)

    @property
    def kv_lens(self) -> Ints:
        """Length of each sequence, including its tokens of this step: [B]."""
        ends: Ints = self.starts + self.counts
        return ends

    @property
    def positions(self) -> Ints:
        """Position of each token in its sequence: [T]."""
        if self.num_single == len(self.rows):
            return self.starts
        first = np.cumsum(self.counts) - self.counts
        found: Ints = np.arange(len(self.tokens)) + np.repeat(self.starts - first, self.counts)
        return found

    @property
    def token_rows(self) -> Ints:
        """Row of each token: [T]."""
        return self.rows if self.num_single == len(self.rows) else np.repeat(self.rows, self.counts)

    @property
    def sampled_rows(self) -> Ints:
        """Row of each sampled token: [S]."""
        return self.rows if self.is_decode else np.repeat(self.rows, self.num_sampled)

    @property
    def sampled(self) -> SampledTokens:
        """Places, rows and positions of the sampled tokens."""
        if self.is_decode:
            return np.arange(len(self.rows)), self.rows, self.kv_lens
        places, positions = self._last_of_each(np.cumsum(self.counts)), self._last_of_each(self.kv_lens) + 1
        return places, self.sampled_rows, positions

    def _last_of_each(self, ends: Ints) -> Ints:
        """Return the `num_sampled[b]` integers just below `ends[b]`, for each sequence b in turn: [S]."""
        num = self.num_sampled
        found: Ints = np.arange(int(num.sum())) + np.repeat(ends - np.cumsum(num), num)
        return found


NO_STEP = StepInput(NO_INTS, NO_INTS, NO_INTS, NO_INTS, NO_INTS, NO_INTS, 0, 0)
"""Step that computes nothing."""


class TokenMasks(msgspec.Struct, frozen=True):
    """Masks of the tokens that grammars, thinking budgets and bad words of several tokens allow.

    Masks restrict only the sampled tokens that are listed in `places`.

    Attributes:
        places: index, among the S sampled tokens, of the token that each mask is for: [R].
        words: bits of each mask, int32: [R, ceil(vocab / 32)]. Bit t % 32 of word t // 32 is 1 if token t is
            allowed.
    """

    places: tuple[int, ...]
    words: Words


class StepOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """Results of a step.

    Attributes:
        token_ids: sampled tokens, in the order of `StepInput.sampled_rows`: [S].
        logprobs: log probabilities of the sampled tokens, by row, for sequences that ask for them.
        prompt_logprobs: log probabilities of `StepInput.scored`, by row.
        not_finite: indices, among the S sampled tokens, of those whose logits hold NaN or infinity. These
            tokens are meaningless.
        failures: index, among the S sampled tokens, of each token whose logits processor has failed → message
            for the client. These tokens are meaningless, too.
    """

    token_ids: list[int]
    logprobs: dict[int, list[TokenLogprob]] = {}
    prompt_logprobs: dict[int, list[TokenLogprob]] = {}
    not_finite: list[int] = []
    failures: dict[int, str] = {}


Part = StepInput | TokenMasks | StepOutput
PartT = TypeVar("PartT", StepInput, TokenMasks, StepOutput)


def encode(part: Part) -> bytes:
    """Encode one of a step's messages as msgpack."""
    return _ENCODER.encode(part)


def decode(data: bytes, kind: type[PartT]) -> PartT:
    """Decode a message from `encode`. `step_check` checks the numbers in it; this function does not.

    Raises:
        msgspec.DecodeError: the data is not of this kind.
        RequestError: a sampling parameter is out of range.
    """
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_to_array)


def _from_array(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise NotImplementedError(f"a step holds a {type(value).__name__}, which is not plain data")


def _to_array(kind: object, value: Any) -> npt.NDArray[Any]:
    dtype, shape, data = value
    if dtype not in _DTYPES or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
        raise ValueError(f"an array is {dtype!r:.40} {shape!r:.40}; it must be one of {', '.join(_DTYPES)}")
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()  # the copy can be written to


_DTYPES = (np.dtype(np.int64).str, np.dtype(np.int32).str)
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_from_array)
