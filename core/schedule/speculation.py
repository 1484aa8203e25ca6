"""Speculative decoding: chooses the sequences and lengths of drafts in a step, and counts accepted tokens.

    token_ids   [ prompt ......... | output ... t ]
    step                                      [ t  d1  d2  d3 ]     1 + 3 tokens are computed
    sampled                                     s1  s2  s3  s4      one after each of them
    kept                                        s1  s2  s3          if s1 = d1, s2 = d2, s3 ≠ d3

The kept tokens are the same as without drafts: s1 does not depend on the drafts; s2 depends only on d1, which
is correct if s1 = d1; and so on. Later steps overwrite the keys and values of rejected drafts.

Drafts never take resources that other sequences need. A step has no drafts if it holds prompt tokens or if
many sequences decode. A sequence gets no draft if the draft's pages would make pages scarce. If drafted
tokens are rejected, the sequence's next draft is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.drafter import Drafter, SequenceDrafter
from llmfw.core.plugin.choice import Created, create
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.plugin.registry import Registry

from .isolated_drafter import IsolatedDrafter
from .plan import BatchPlan
from .plan_builder import PlanBuilder
from .sequence import SequenceState
from .sequence_pages import SequencePages

SPARE_TOKENS = 20
"""Reserve, in tokens per running sequence. A draft gets pages only if pages for the reserve stay available.
A retraction frees pages for the same reserve."""


DEFAULT_BATCH_TOKENS = {"cpu": 16, "cuda": 256}
"""Number of tokens, by device type, up to which a step takes little longer than a step of one token, because
reading the weights dominates."""


class _Drafted:
    """Drafting state of one sequence.

    Attributes:
        drafter: the sequence's drafter; None: the sequence gets no drafts.
        num_seen: number of leading tokens that the drafter has seen.
        limit: maximum number of tokens of the next draft.
    """

    __slots__ = ("drafter", "limit", "num_seen")

    def __init__(self, drafter: SequenceDrafter | None, limit: int) -> None:
        self.drafter = drafter
        self.limit = limit
        self.num_seen = 0


class Speculation:
    """Adds drafted tokens to steps.

    Args:
        drafter: source of the drafts.
        max_draft: maximum number of tokens in one draft.
        max_tokens: maximum number of tokens in a step that holds drafts, including one token per sequence.

    Attributes:
        num_drafted: number of drafted tokens since start.
        num_accepted: number of accepted tokens since start.
    """

    def __init__(self, drafter: IsolatedDrafter, *, max_draft: int, max_tokens: int) -> None:
        self.num_drafted = 0
        self.num_accepted = 0
        self._drafter = drafter
        self._max_draft = max_draft
        self._max_tokens = max_tokens
        self._sequences: dict[str, _Drafted] = {}

    def add_to(
        self, builder: PlanBuilder, pages: SequencePages, num_running: int, *, with_deferrable: bool
    ) -> None:
        """Add drafts for the decoding sequences of a step. No token may be in flight.

        Args:
            builder: builder of the step, which already holds everything except drafts.
            pages: source of the drafts' pages.
            num_running: number of sequences that hold pages.
            with_deferrable: whether deferrable sequences get drafts, too.
        """
        if self._drafter.failure is not None or builder.holds_prompts:
            return
        decoding = builder.decoding
        if not 0 < len(decoding) < self._max_tokens:
            return
        chosen = [
            seq
            for seq in pages.numbers.sequences(decoding)
            if self._known(seq).drafter is not None and (with_deferrable or not seq.request.deferrable)
        ]
        left = self._max_tokens - len(decoding)
        for place, seq in enumerate(chosen):
            limit = min(-(-left // (len(chosen) - place)), seq.num_to_come - 1)
            tokens = self._tokens(seq, limit) if limit > 0 else []
            spare = SPARE_TOKENS * num_running
            if tokens and _extend(pages, seq, seq.num_computed + 1 + len(tokens), spare):
                builder.add_drafted(seq, tokens)
                left -= len(tokens)

    def learn(self, plan: BatchPlan, kept: Sequence[Sequence[int]]) -> None:
        """Count the accepted tokens of a committed plan, and adapt each sequence's draft length.

        Args:
            plan: plan with drafts.
            kept: kept tokens of the plan, from `kept_tokens`.
        """
        for p, tokens in zip((p for p in plan.parts if p.samples), kept, strict=True):
            if not p.drafts:
                continue
            num_accepted = len(tokens) - 1
            self.num_drafted += len(p.drafts)
            self.num_accepted += num_accepted
            known = self._sequences.get(p.seq.id)
            if known is not None:
                whole = num_accepted == len(p.drafts)
                known.limit = min(self._max_draft, 2 * known.limit) if whole else max(1, num_accepted)

    def forget(self, seq: SequenceState) -> None:
        """Drop the state of a sequence that has ended."""
        self._sequences.pop(seq.id, None)

    def _known(self, seq: SequenceState) -> _Drafted:
        known = self._sequences.get(seq.id)
        if known is None:
            drafter = self._drafter.begin(seq.request) if is_independent(seq) else None
            known = self._sequences[seq.id] = _Drafted(drafter, self._max_draft)
        return known

    def _tokens(self, seq: SequenceState, limit: int) -> list[int]:
        known = self._known(seq)
        assert known.drafter is not None
        new = seq.tokens(known.num_seen, seq.num_tokens)
        known.num_seen = seq.num_tokens
        listed = new if isinstance(new, list) else new.tolist()
        return self._drafter.draft(known.drafter, listed, min(limit, known.limit))


def max_batch_tokens(config: EngineConfig, device: str) -> int:
    """Return the maximum number of tokens in a step that holds drafts; 0 if no drafter is configured.

    Args:
        device: device type, "cpu" or "cuda".
    """
    if config.drafter == "none":
        return 0
    asked = config.draft_batch_tokens
    return DEFAULT_BATCH_TOKENS.get(device, DEFAULT_BATCH_TOKENS["cuda"]) if asked is None else asked


def choose_drafter(config: EngineConfig, registry: Registry) -> Created[Drafter] | None:
    """Build the configured drafter; return None if the config names none.

    Does not need the model, so errors can be reported before the model is loaded.

    Raises:
        ConfigError: the drafter or an option is unknown, an option has an invalid value, options are given
            without a drafter, or the config has both a drafter and the overlapped loop.
        ComponentError: the drafter cannot be imported or built.
    """
    if config.drafter == "none":
        refuse_options("drafter", config.options, "no drafter is chosen; --drafter NAME chooses one")
        return None
    if config.overlap:
        raise ConfigError("--drafter needs tokens that are known: it does not go with an overlapped schedule")
    return create(registry, "drafter", config.drafter, config.options)


def build_speculation(
    config: EngineConfig, registry: Registry, chosen: Created[Drafter] | None, vocab_size: int, device: str
) -> Speculation | None:
    """Return a `Speculation` with the chosen drafter; None if no drafter is chosen."""
    if chosen is None:
        return None
    max_tokens = max_batch_tokens(config, device)
    calls = registry.ledger.of(chosen.entry)
    drafter = IsolatedDrafter(
        chosen.component, vocab_size, str(chosen.entry), calls, registry.request_fields()
    )
    return Speculation(drafter, max_draft=config.draft_tokens, max_tokens=max_tokens)


def is_independent(seq: SequenceState) -> bool:
    """Return whether sampling for a sequence needs only the logits, and no state that each token updates.

    Examples of such state are penalty counts, a grammar, a thinking budget and the tokens of logits
    processors. With drafts, this state would have to be updated after each drafted token, and restored if the
    token is rejected.
    """
    is_free = seq.constraint is None and not seq.processors.names
    return is_free and not seq.request.sampling.has_penalties


def _extend(pages: SequencePages, seq: SequenceState, num_tokens: int, spare: int) -> bool:
    """Give a sequence pages for its first `num_tokens` tokens, including drafted tokens at the end.

    Adds pages only if pages for `spare` tokens stay available. Returns whether the sequence has the pages.
    """
    needed = pages.num_new_pages(seq, num_tokens) * pages.page_size
    return not needed or (needed + spare <= pages.num_available_tokens and pages.extend(seq, num_tokens))
