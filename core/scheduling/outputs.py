"""What becomes of sampled tokens: they are appended, checked for an end, and told."""

from __future__ import annotations

from ..request import FinishReason, TokenEvent, TokenLogprob
from .plan import BatchPlan, StepResult
from .sequence import SequenceState, Status
from .sequence_table import SequenceTable
from .tenants import OUTPUT_WEIGHT, Tenants


def take_sampled(
    plan: BatchPlan, result: StepResult, table: SequenceTable, tenants: Tenants
) -> tuple[list[TokenEvent], list[tuple[SequenceState, FinishReason]]]:
    """Append the sampled tokens of a plan to their sequences.

    Returns:
        An event for each, but for sequences that ended meanwhile; and which sequences end with theirs, and why.
    """
    sampling, tokens = plan.sampling, result.token_ids
    indices = plan.indices if plan.is_decode else plan.indices[plan.samples]
    goes_on = [seq.status is not Status.FINISHED for seq in sampling]
    if not all(goes_on):
        indices = indices[goes_on]
        tokens = [token for token, alive in zip(tokens, goes_on, strict=True) if alive]
        sampling = [seq for seq, alive in zip(sampling, goes_on, strict=True) if alive]
    table.num_in_flight[indices] -= 1
    is_last = table.length[indices] - table.num_in_flight[indices] >= table.max_len[indices]
    events: list[TokenEvent] = []
    ends: list[tuple[SequenceState, FinishReason]] = []
    for seq, token, last in zip(sampling, tokens, is_last.tolist(), strict=True):
        if seq.is_plain and not last and token not in seq.stop_token_ids:
            seq.output.append(token)
            events.append(TokenEvent(seq.id, [token]))
        else:
            event = _take(seq, token, result.logprobs.get(seq.id))
            events.append(event)
            if event.finish_reason is not None:
                ends.append((seq, event.finish_reason))
    tenants.charge(table.tenant[indices], OUTPUT_WEIGHT)
    return events, ends


def _take(seq: SequenceState, token_id: int, logprob: TokenLogprob | None) -> TokenEvent:
    """Append a sampled token, and what has to follow it; return the event that tells of all."""
    event = TokenEvent(seq.id, [], logprobs=None if logprob is None else [logprob])
    if not seq.output:
        event.cached_tokens = seq.num_cached_first or 0
        event.prompt_logprobs = seq.prompt_logprobs.records if seq.prompt_logprobs is not None else None
        seq.is_plain = seq.constraint is None and seq.request.logprobs is None
    seq.output.append(token_id)
    _check(seq, token_id, event)
    while event.finish_reason is None and (forced := seq.jump_token) is not None:
        seq.append(forced)
        _check(seq, forced, event)
    return event


def _check(seq: SequenceState, token_id: int, event: TokenEvent) -> None:
    """Add a token that was appended to its event, which says whether the sequence ends with it."""
    event.token_ids.append(token_id)
    try:
        if seq.constraint is not None:
            seq.constraint.accept(token_id)
    except Exception as error:  # noqa: BLE001 - a plugin's: those of one sequence must not end the engine for all
        assert seq.constraint is not None
        failure = seq.constraint.blame(error, f"the grammar of request {seq.id} after token {token_id}")
        event.finish_reason = FinishReason.ERROR
        event.error, event.error_kind = str(failure), type(failure).__name__
        return
    event.finish_reason = seq.finish_reason_now()
    if event.finish_reason is FinishReason.LENGTH and seq.constraint and seq.constraint.has_ended:
        event.token_ids.pop()  # the end, which an output that was too long does not tell of
        event.logprobs = event.logprobs and event.logprobs[: len(event.token_ids)]
