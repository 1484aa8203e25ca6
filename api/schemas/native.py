"""SGLang's native API: /generate and /get_model_info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import MAX_CHOICES, Body, CacheSalt, SmallInt, Timeout
from .logprobs import NumTop
from .refusals import REFUSALS, Refusal, absent, of_prompt, renamed
from .token_fields import TokenId

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class NativeSampling(Body, kw_only=True):
    """The object `sampling_params` of a request. Its fields have SGLang's names.

    If `max_new_tokens` is null, the text may fill the context; if it is omitted, the default applies.
    """

    max_new_tokens: SmallInt | UnsetType | None = UNSET
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    min_new_tokens: SmallInt | None = None
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
    stop_regex: str | list[str] | None = None
    no_stop_trim: bool | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    sampling_seed: int | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        "beam_width": absent(1),
    }


class GenerateRequest(Body, kw_only=True):
    """Body of POST /generate: one prompt or a list of prompts, as text or token ids.

    The reply to a list of prompts, or to one prompt with several choices, is a list. For a list of prompts,
    `sampling_params` and `rid` may be lists with one item per prompt, and `token_ids_logprob` a list of lists.
    """

    model: str | None = None
    text: str | list[str] | None = None
    input_ids: list[SmallInt | list[SmallInt]] | None = None
    sampling_params: NativeSampling | list[NativeSampling] | None = None
    rid: RequestId | list[RequestId] | None = None
    stream: bool | None = None
    return_logprob: bool | None = None
    top_logprobs_num: NumTop | None = None
    token_ids_logprob: list[TokenId | list[TokenId]] | None = None
    logprob_start_len: SmallInt | None = None
    return_text_in_logprobs: bool | None = None
    priority: SmallInt | None = None
    timeout: Timeout | None = None
    cache_salt: CacheSalt | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        **{
            name: absent(
                *REFUSALS[name].neutral if name in REFUSALS else (), why="put it into sampling_params"
            )
            for name in NativeSampling.__struct_fields__
        },
        "audio_data": of_prompt("this server reads text and images only", "", []),
        "image_data": of_prompt("images are image_url parts of a message in /v1/chat/completions", "", []),
        "video_data": of_prompt("this server reads text and images only", "", []),
        "input_embeds": of_prompt("this server reads text or token ids", []),
        "positional_embed_overrides": of_prompt("this server reads text or token ids", []),
        "lora_id": absent("", [], why="adapters are models: name one as model"),
        "max_thinking_tokens": absent(why="/v1/chat/completions takes thinking_budget"),
        "require_reasoning": absent(False, why="/v1/chat/completions holds the answer alone to a form"),
        "multi_item_delimiter_indices": absent([], why="send the items as a list of prompts"),
        "return_bytes": absent(False, why="this server returns text"),
        "return_entropy": absent(False, why="this server returns no entropy"),
        "return_flat_raw_top_logprobs": absent(False, why="top_logprobs_num returns lists"),
        "return_flat_raw_top_logprobs_b64": absent(False, why="top_logprobs_num returns lists"),
        "return_indexer_topk": absent(False, why="this server returns no state of the model"),
        "return_prompt_token_ids": absent(False, why="logprob_start_len 0 returns the prompt's tokens"),
        "return_routed_experts": absent(False, why="this server returns no state of the model"),
        "return_sampling_mask": absent(False, why="this server returns no sampling masks"),
        "prompt": renamed("text"),
    }


Scored = tuple[float | None, int, str | None]
"""A scored token in SGLang's form: log probability, token id, and the text if requested."""


class MetaInfo(msgspec.Struct, kw_only=True):
    """Finish reason, token counts and log probabilities of a generation.

    `finish_reason` is null until the generation ends. Only a generation that has ended has `e2e_latency`, in
    seconds. `reasoning_tokens` is omitted if the server has no reasoning parser. Log probabilities are
    omitted unless requested.
    """

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | UnsetType = UNSET
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[Scored] | UnsetType = UNSET
    output_token_logprobs: list[Scored] | UnsetType = UNSET
    output_token_logprobs_length: int | UnsetType = UNSET
    input_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET
    output_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET
    input_token_ids_logprobs: list[list[Scored] | None] | UnsetType = UNSET
    output_token_ids_logprobs: list[list[Scored] | None] | UnsetType = UNSET


class GenerateReply(msgspec.Struct, kw_only=True):
    """One choice of a reply, or an event of its stream, which has the whole text and all token ids so far.

    `index` is the index of the choice in the reply; it is omitted unless a stream has several.
    """

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
