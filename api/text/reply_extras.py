"""Optional parts of a reply: token ids, log probabilities of the prompt, and token counts in each chunk."""

from __future__ import annotations

import msgspec


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """The optional parts that one client asked for.

    Attributes:
        token_ids: whether the reply has the token ids of prompts and texts.
        names_ids: whether log probabilities name tokens as "token_id:ID".
        prompt_logprobs: number of most likely tokens to report for each token of a prompt; None: report none.
        usage: whether each chunk of a stream has the token counts so far.
        echo: text that precedes the answer.
    """

    token_ids: bool = False
    names_ids: bool = False
    prompt_logprobs: int | None = None
    usage: bool = False
    echo: str = ""


NO_EXTRAS = Extras()
