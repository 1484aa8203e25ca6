"""Writes the `StepInput` of a plan: arrays of tokens, rows, positions and pages for the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from llmfw.core.base.step import (
    NO_COPIES,
    NO_IMAGES,
    NO_INTS,
    NOT_IN_FLIGHT,
    Ints,
    RowCounts,
    RowStart,
    RowTokens,
    ScoredPrompt,
    StepInput,
)

from .sequence import SequenceState
from .sequence_pages import SequencePages
from .sequence_table import COUNTS, TOKENS, Indices, SequenceTable


def write_decode(pages: SequencePages, indices: Indices) -> StepInput:
    """Return the input of a step in which every sequence decodes. Nearly all steps are of this kind.

    Args:
        pages: pages of all sequences.
        indices: indices of the sequences in the table: [B].
    """
    table, num = pages.numbers, len(indices)
    rows, starts = table.row[indices], table.num_computed[indices]
    tokens, sources = _last_tokens(table, indices, rows)
    ones = np.ones(num, dtype=np.int64)
    places, changed = pages.take_changes(rows, starts + 1)
    row_counts, row_tokens = _tracked(table, indices, starts + 1)
    states = NO_COPIES if pages.states is None else pages.states.take_copies((), num, rows, starts, ones)
    rotary = NO_INTS
    if pages.images is not None and (shifts := table.shift[indices]).any():
        rotary = np.tile(starts + shifts, (3, 1))
    return StepInput(
        tokens=tokens,
        sources=sources,
        rows=rows,
        starts=starts,
        counts=ones,
        num_sampled=ones,
        num_single=num,
        num_sampling=num,
        page_places=places,
        pages=changed,
        row_counts=row_counts,
        row_tokens=row_tokens,
        states=states,
        adapters=_adapters(table, indices),
        rotary=rotary,
    )


def write_step(
    pages: SequencePages,
    indices: Indices,
    sequences: Sequence[SequenceState],
    starts: Ints,
    counts: Ints,
    num_sampled: Ints,
    is_prefill: Ints,
    drafts: Mapping[int, Sequence[int]],
    num_decoding: int,
) -> StepInput:
    """Return the input of a step that computes prompt tokens or drafts.

    Args:
        pages: pages of all sequences.
        indices: indices of the sequences in the table, sequences with one token first: [B].
        sequences: sequences at these indices.
        starts, counts, num_sampled: columns as in `StepInput`: [B].
        is_prefill: whether each sequence computes prompt tokens: [B].
        drafts: drafted tokens, by index into `sequences`.
        num_decoding: number of sequences that decode, without drafts; they come first.
    """
    table = pages.numbers
    rows, ends = table.row[indices], starts + counts
    samples = num_sampled > 0
    new = [sequences[place] for place in np.flatnonzero(table.is_new[indices])]
    for seq in new:
        seq.num_counted = -1
    num_single = int(np.count_nonzero(counts == 1))
    tokens, sources = _tokens(table, indices, sequences, rows, starts, counts, num_single, drafts)
    places, changed = pages.take_changes(rows, ends)
    row_counts, row_tokens = _tracked(table, indices[samples], ends[samples])
    states = NO_COPIES
    if pages.states is not None:
        states = pages.states.take_copies(sequences, num_decoding, rows, starts, counts)
    return StepInput(
        tokens=tokens,
        sources=sources,
        rows=rows,
        starts=starts,
        counts=counts,
        num_sampled=num_sampled,
        num_single=num_single,
        num_sampling=int(np.count_nonzero(samples)),
        page_places=places,
        pages=changed,
        row_starts=tuple(map(start_row, new)),
        row_counts=row_counts,
        row_tokens=row_tokens,
        scored=tuple(_scored(sequences, starts, counts, is_prefill)),
        states=states,
        adapters=_adapters(table, indices),
        images=NO_IMAGES if pages.images is None else pages.images.take(sequences, starts, counts),
        rotary=_rotary(sequences, starts, counts),
        ends=_ends(sequences, starts, counts),
    )


def start_row(seq: SequenceState) -> RowStart:
    """Return the data about a sequence that an executor needs when the sequence gets its row."""
    request = seq.request
    return RowStart(
        seq.row,
        seq.prompt_len,
        request.sampling,
        tuple(sorted(seq.stop_token_ids)),
        request.logprobs,
        request.prompt_logprobs,
        request.constrained_logprobs,
        request.logprob_token_ids,
        request.prompt_logprob_token_ids,
        seq.processors,
        request.fields if seq.processors.names else {},
    )


def count_tokens(seq: SequenceState) -> RowCounts:
    """Return how often each token occurs in a sequence's output, for penalties.

    With a repetition penalty, the result also has the prompt tokens that were not generated, with count 0.
    """
    ids, counts = np.unique(seq.output_ids, return_counts=True)
    if seq.request.sampling.repetition_penalty != 1:
        others = np.setdiff1d(seq.prompt, ids)
        ids = np.concatenate([ids, others])
        counts = np.concatenate([counts, np.zeros(len(others), dtype=counts.dtype)])
    return RowCounts(seq.row, ids.astype(np.int64), counts.astype(np.int64))


def _adapters(table: SequenceTable, indices: Indices) -> Ints:
    """Return the slots of the sequences' adapters, as in `StepInput`."""
    if not table.uses_slots:
        return NO_INTS
    slots = table.slot[indices]
    return slots if slots.any() else NO_INTS


def _rotary(sequences: Sequence[SequenceState], starts: Ints, counts: Ints) -> Ints:
    """Return the tokens' rotary positions, as in `StepInput`."""
    if not any(seq.media is not None and seq.media.has_rotary for seq in sequences):
        return NO_INTS
    return np.concatenate(
        [
            np.tile(np.arange(start, start + count), (3, 1))
            if seq.media is None
            else seq.media.rotary(start, start + count)
            for seq, start, count in zip(sequences, starts.tolist(), counts.tolist(), strict=True)
        ],
        axis=1,
    )


def _ends(sequences: Sequence[SequenceState], starts: Ints, counts: Ints) -> Ints:
    """Return the position after the last token that each token attends to, as in `StepInput`."""
    if not any(seq.media is not None and len(seq.media.blocks) for seq in sequences):
        return NO_INTS
    pieces = list(zip(sequences, starts.tolist(), (starts + counts).tolist(), strict=True))
    own = np.concatenate([np.arange(start, end) + 1 for _, start, end in pieces])
    found: Ints = np.concatenate(
        [
            np.arange(start, end) + 1 if seq.media is None else seq.media.ends(start, end)
            for seq, start, end in pieces
        ]
    )
    return NO_INTS if np.array_equal(own, found) else found


def _last_tokens(table: SequenceTable, indices: Indices, rows: Ints) -> tuple[Ints, Ints]:
    """Return tokens and sources, as in `StepInput`, for sequences that compute only their last token."""
    tokens = table.last_token[indices]
    in_flight = table.num_in_flight[indices] > 0
    if not np.count_nonzero(in_flight):
        return tokens, np.full(len(rows), NOT_IN_FLIGHT, dtype=np.int64)
    return np.where(in_flight, 0, tokens), np.where(in_flight, rows, NOT_IN_FLIGHT)


def _tokens(
    table: SequenceTable,
    indices: Indices,
    sequences: Sequence[SequenceState],
    rows: Ints,
    starts: Ints,
    counts: Ints,
    num_single: int,
    drafts: Mapping[int, Sequence[int]],
) -> tuple[Ints, Ints]:
    """Return tokens and sources, as in `StepInput`, for sequences that decode, prefill or have drafts."""
    known = np.zeros(int(counts.sum()), dtype=np.int64)
    sources = np.full(len(known), NOT_IN_FLIGHT, dtype=np.int64)
    single = indices[:num_single]
    known[:num_single], sources[:num_single] = _last_tokens(table, single, rows[:num_single])
    lengths = table.length[single]
    is_other = (lengths - starts[:num_single] != 1) | (lengths == table.prompt_len[single])
    for place in np.flatnonzero(is_other).tolist():  # not the last token of an output
        known[place] = sequences[place].tokens(int(starts[place]), int(starts[place]) + 1)[0]
        sources[place] = NOT_IN_FLIGHT
    first = num_single
    for place in range(num_single, len(sequences)):
        start, count = int(starts[place]), int(counts[place])
        ids = sequences[place].tokens(start, start + count)
        known[first : first + len(ids)] = ids
        first += count
        if (guessed := drafts.get(place)) is not None:  # in this case no token is in flight
            known[first - len(guessed) : first] = guessed
        elif len(ids) < count:
            sources[first - 1] = rows[place]
    return known, sources


def _tracked(
    table: SequenceTable, indices: Indices, ends: Ints
) -> tuple[tuple[RowCounts, ...], tuple[RowTokens, ...]]:
    """Return token counts and tokens for the sequences whose tokens the executor does not know.

    Penalties need the counts, and logits processors need the tokens. From then on, the executor itself
    tracks the tokens that it samples.

    Args:
        table: table of all sequences.
        indices: table indices of the sequences that sample: [n].
        ends: position of each sampled token: [n].
    """
    places = np.flatnonzero(table.tracking[indices])
    if not len(places):
        return (), ()
    indices = indices[places]
    num_output = ends[places] - table.prompt_len[indices]
    missing = indices[table.num_counted[indices] < num_output]
    table.num_counted[indices] = num_output + 1
    counted, kept = (
        table.sequences(missing[table.tracking[missing] & flag > 0]) for flag in (COUNTS, TOKENS)
    )
    return tuple(map(count_tokens, counted)), tuple(RowTokens(seq.row, seq.token_ids) for seq in kept)


def _scored(
    sequences: Sequence[SequenceState], starts: Ints, counts: Ints, is_prefill: Ints
) -> list[ScoredPrompt]:
    """Return the prompt tokens whose log probabilities are requested."""
    found = []
    for place in np.flatnonzero(is_prefill).tolist():
        seq = sequences[place]
        if seq.prompt_logprobs is None:
            continue
        start, count = int(starts[place]), int(counts[place])
        wanted = seq.prompt_logprobs.wanted(start, start + count)
        if wanted:
            first = int(counts[:place].sum()) + wanted.start - start
            following = seq.token_ids[wanted.start + 1 : wanted.stop + 1].astype(np.int64)
            found.append(ScoredPrompt(seq.row, first, following))
    return found
