"""What the bodies of chat completions and completions have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

SmallInt = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An integer of 32 bits: so that no value that passes can overflow anything behind it."""

MAX_CHOICES = 128


class StreamOptions(msgspec.Struct, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


UNSUPPORTED: dict[str, str] = dict.fromkeys(
    (
        "custom_logit_processor",
        "ebnf",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "include_stop_str_in_output",
        "json_schema",
        "logits_processors",
        "lora_path",
        "no_stop_trim",
        "prompt_logprobs",
        "regex",
        "response_format",
        "return_hidden_states",
        "structural_tag",
        "structured_outputs",
        "truncate_prompt_tokens",
        "use_beam_search",
    ),
    "this server does not constrain or alter generation in this way",
)
"""Fields of other servers' APIs that would change the answer, and why they are refused."""


class Body(msgspec.Struct):
    """A body whose unknown fields are looked at: some are refused, the others are reported as ignored.

    Ignored on purpose, because they change nothing here: `user`, `metadata`, `store`, `service_tier`,
    `prompt_cache_key` and its like, `safety_identifier`, `prediction`, `verbosity`.
    """

    refused: ClassVar[dict[str, str]] = {}
    """Fields that would change the answer and are not supported yet, with the reason."""

    def asks(self, name: str, value: Any) -> bool:
        """Return whether this value of a refused field asks for anything."""
        if name == "response_format":
            return value not in (None, {"type": "text"})
        return value not in (None, False, 0, "", [], {})


class GenerationRequest(Body, kw_only=True):
    """Fields of both kinds of request. None means that the client left the choice to the server."""

    model: str | None = None
    max_tokens: SmallInt | None = None
    min_tokens: SmallInt | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: SmallInt | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[SmallInt] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: SmallInt | None = None

    refused: ClassVar[dict[str, str]] = UNSUPPORTED


class PromptTokensDetails(msgspec.Struct):
    """What is known of the prompt's tokens."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """What is known of the new tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
