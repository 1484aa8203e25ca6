"""Appends sampled tokens to their sequences, checks whether the sequences end, and creates events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from llmfw.core.base.errors import ComponentFailedError, EngineError
from llmfw.core.base.request import FinishReason, TokenEvent, TokenLogprob
from llmfw.core.base.step import StepOutput
from llmfw.core.plugin.containment import contained

from .plan import BatchPlan
from .sequence import SequenceState, Status
from .sequence_table import SequenceTable
from .tenants import OUTPUT_WEIGHT, Tenants
from .token_gaps import TokenGaps

NOT_FINITE = EngineError("the model computed NaN or infinity for this request; the server's log says more")


def kept_tokens(plan: BatchPlan, token_ids: Sequence[int]) -> list[Sequence[int]]:
    """Return the sampled tokens to keep from a plan with drafts, as a list for each sequence that samples.

    A sequence's list starts with the token sampled after its last known token. Then follow the tokens that were
    sampled after each drafted token, up to the first wrong one.
    """
    kept, first = [], 0
    for p in plan.parts:
        if p.samples:
            sampled = token_ids[first : first + 1 + len(p.drafts)]
            first += len(sampled)
            right = (token == draft for token, draft in zip(sampled, p.drafts, strict=False))
            kept.append(
                sampled[: 1 + next((i for i, is_right in enumerate(right) if not is_right), len(p.drafts))]
            )
    return kept


def errors_in(plan: BatchPlan, output: StepOutput) -> dict[str, Exception]:
    """Return the errors that end requests after this step, by request id.

    A request ends with an error if the model has computed NaN or infinity for it, or if a logits processor
    has failed.
    """
    owners = [p.seq.id for p in plan.parts if p.samples for _ in range(1 + len(p.drafts))]
    found: dict[str, Exception] = {owners[place]: NOT_FINITE for place in output.not_finite}
    failures = {owners[place]: ComponentFailedError(said) for place, said in output.failures.items()}
    return found | failures


def take_sampled(
    plan: BatchPlan,
    output: StepOutput,
    table: SequenceTable,
    tenants: Tenants,
    gaps: TokenGaps,
    now: float,
    kept: Sequence[Sequence[int]] = (),
    broken: Mapping[str, Exception] = MappingProxyType({}),
) -> tuple[list[TokenEvent], list[tuple[SequenceState, FinishReason]]]:
    """Append the sampled tokens of a plan to their sequences, and charge the sequences' tenants.

    Args:
        gaps: records the time between the sequences' tokens.
        now: time in seconds, for `gaps`.
        kept: tokens from `kept_tokens`, if the plan has drafts.
        broken: errors from `errors_in`, which end their sequences.

    Returns:
        An event for each sequence that sampled a token and has not ended since the plan was launched; and the
        finish reasons of the sequences that end with these events.
    """
    sampling, tokens = plan.sampling, output.token_ids
    indices = plan.indices if plan.is_decode else plan.indices[plan.samples]
    logprobs = _by_request(plan, output) if output.logprobs else {}
    more: dict[str, Sequence[int]] = {}  # tokens after the first, by request
    if plan.drafts:
        tokens = [each[0] for each in kept]
        more = {seq.id: each[1:] for seq, each in zip(sampling, kept, strict=True) if len(each) > 1}
    goes_on = [seq.status is not Status.FINISHED for seq in sampling]
    if not all(goes_on):
        indices = indices[goes_on]
        tokens = [token for token, alive in zip(tokens, goes_on, strict=True) if alive]
        sampling = [seq for seq, alive in zip(sampling, goes_on, strict=True) if alive]
    table.num_in_flight[indices] -= 1
    table.last_token[indices] = tokens
    gaps.note(indices, now)
    if plan.drafts:
        _correct(plan, more)
    is_last = table.length[indices] - table.num_in_flight[indices] >= table.max_len[indices]
    events: list[TokenEvent] = []
    ends: list[tuple[SequenceState, FinishReason]] = []
    for seq, token, last in zip(sampling, tokens, is_last.tolist(), strict=True):
        if seq.id in broken:
            events.append(TokenEvent.failed(seq.id, broken[seq.id]))
            ends.append((seq, FinishReason.ERROR))
        elif seq.is_plain and not last and token not in seq.stop_token_ids and seq.id not in more:
            seq.output.append(token)
            events.append(TokenEvent(seq.id, [token]))
        else:
            event = _take(seq, [token, *more.get(seq.id, ())], logprobs.get(seq.id))
            events.append(event)
            seq.last_token = seq.output[-1]
            if event.finish_reason is not None:
                ends.append((seq, event.finish_reason))
    counts = np.array([1 + len(more.get(seq.id, ())) for seq in sampling]) if more else 1
    tenants.charge(table.tenant[indices], OUTPUT_WEIGHT * counts)
    return events, ends


def _by_request(plan: BatchPlan, output: StepOutput) -> dict[str, list[TokenLogprob]]:
    """Return the log probabilities of sampled tokens, by request id."""
    ids = {int(row): seq.id for row, seq in zip(plan.rows, plan.sequences, strict=True)}
    return {ids[row]: records for row, records in output.logprobs.items()}


def _correct(plan: BatchPlan, more: Mapping[str, Sequence[int]]) -> None:
    """Correct the sequences' lengths: correct drafts count as known tokens, wrong ones as not computed."""
    for place, drafts in plan.drafts.items():
        seq = plan.sequences[place]
        if seq.status is Status.RUNNING:
            num_right = len(more.get(seq.id, ()))
            seq.length += num_right
            seq.num_computed -= len(drafts) - num_right


def _take(
    seq: SequenceState, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None
) -> TokenEvent:
    """Append sampled tokens, and the forced tokens that follow; return an event with all of them."""
    event = TokenEvent(seq.id, [], logprobs=None if logprobs is None else list(logprobs[: len(token_ids)]))
    if not seq.output:
        event.cached_tokens, event.queued_us = seq.num_cached_first or 0, seq.queued_us
        event.prompt_logprobs = seq.prompt_logprobs.records if seq.prompt_logprobs is not None else None
        seq.is_plain = seq.constraint is None and seq.request.logprobs is None
    for token_id in token_ids:
        seq.output.append(token_id)
        _check(seq, token_id, event)
        if event.finish_reason is not None:
            break
    event.logprobs = event.logprobs and event.logprobs[: len(event.token_ids)]
    while event.finish_reason is None and (forced := seq.jump_token) is not None:
        seq.append(forced)
        _check(seq, forced, event)
    return event


def _check(seq: SequenceState, token_id: int, event: TokenEvent) -> None:
    """Add an appended token to its event, and set the event's finish reason if the sequence ends with it."""
    event.token_ids.append(token_id)
    try:
        if seq.constraint is not None:
            seq.constraint.accept(token_id)
    except BaseException as error:  # noqa: BLE001 - must not stop the engine for other sequences
        assert seq.constraint is not None
        failure = seq.constraint.blame(
            contained(error), f"the grammar of request {seq.id} after token {token_id}"
        )
        event.finish_reason = FinishReason.ERROR
        event.error, event.error_kind = str(failure), type(failure).__name__
        return
    event.finish_reason = seq.finish_reason_now()
    if event.finish_reason is FinishReason.LENGTH and seq.constraint and seq.constraint.has_ended:
        event.token_ids.pop()  # the end token, which is not part of an output that ends by its length
        event.logprobs = event.logprobs and event.logprobs[: len(event.token_ids)]
