"""What a drafter does wrong costs no request: it is found here, told once, and the drafter is not asked again.

A drafter comes from a plugin. Where it raises, or drafts what is no token, generation goes on without drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index

from llmfw.core.base.config import OptionValue
from llmfw.core.interfaces.drafter import Drafter, SequenceDrafter
from llmfw.core.plugin.asking import Asked, WrongAnswerError
from llmfw.core.plugin.calls import PartCalls
from llmfw.core.plugin.registry import Entry, Registry


class GuardedDrafter:
    """A drafter whose drafts are tokens.

    Args:
        drafter: is asked as long as it answers right.
        vocab_size: tokens are 0 to `vocab_size` - 1.
        who: is to blame, in words: name, plugin, package and version.
        calls: of the part, where they are counted.
    """

    def __init__(
        self, drafter: Drafter, vocab_size: int, who: str = "under test", calls: PartCalls | None = None
    ) -> None:
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._asked = Asked(who, "Generation goes on without drafts", calls)

    @property
    def failure(self) -> str | None:
        """What the drafter did, if it is not asked any more; None: it is."""
        return self._asked.failure

    def begin(self) -> SequenceDrafter | None:
        """Return what drafts for one more sequence; None: the drafter has failed."""

        def ask() -> SequenceDrafter:
            found = self._drafter.begin()
            if not isinstance(found, SequenceDrafter):
                raise WrongAnswerError(f"begin() returned a {type(found).__name__}, not a SequenceDrafter")
            return found

        return self._asked.answer(ask)

    def draft(self, sequence: SequenceDrafter, new: list[int], limit: int) -> list[int]:
        """Return what a sequence's drafter drafts after it has taken in new tokens; nothing once a drafter has failed.

        Args:
            sequence: the drafter's.
            new: tokens that it has not seen yet.
            limit: most drafted tokens.
        """

        def ask() -> list[int]:
            if new:
                sequence.extend(new)
            return check_draft(sequence.draft(limit), limit, self._vocab_size)

        return self._asked.answer(ask) or []


@dataclass(frozen=True, slots=True)
class ChosenDrafter:
    """A drafter that is built, and the part that it is. What a token is, is known when the model is."""

    entry: Entry
    drafter: Drafter

    def guarded(self, vocab_size: int, registry: Registry) -> GuardedDrafter:
        """Return what asks it, for a model with so many tokens."""
        return GuardedDrafter(self.drafter, vocab_size, str(self.entry), registry.ledger.of(self.entry))


def load_drafter(registry: Registry, name: str, options: Mapping[str, OptionValue]) -> ChosenDrafter:
    """Build the drafter of a name.

    Args:
        registry: where it is looked for.
        name: "name" or "plugin/name".
        options: by "drafter.key"; those of other kinds of parts are left alone.

    Raises:
        ConfigError: there is none of that name, or it does not have such an option or value.
        PartError: it cannot be imported or built.
    """
    entry = registry.find("drafter", name)
    return ChosenDrafter(entry, entry.build(entry.load(), entry.build_options(options)))


def check_draft(found: Sequence[int], limit: int, vocab_size: int) -> list[int]:
    """Return a draft as the engine needs it, or raise WrongAnswerError."""
    try:
        tokens = [index(token) for token in found]
    except TypeError:
        raise WrongAnswerError(f"draft() returned {found!r:.80}, not token ids") from None
    if len(tokens) > limit:
        raise WrongAnswerError(f"draft() returned {len(tokens)} tokens where at most {limit} were asked for")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        raise WrongAnswerError(f"draft() returned the token {wrong}, which is none of 0 to {vocab_size - 1}")
    return tokens
