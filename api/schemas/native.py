"""SGLang's native API: /generate and /get_model_info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body, CacheSalt, SmallInt, Timeout
from .logprobs import NumTop
from .refusals import REFUSALS, Refusal, absent, of_prompt, renamed


class NativeSampling(Body, kw_only=True):
    """The object `sampling_params` of a request. Its fields have SGLang's names."""

    max_new_tokens: SmallInt | None = None
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
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    sampling_seed: int | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    refused: ClassVar[Mapping[str, Refusal]] = REFUSALS


class GenerateRequest(Body, kw_only=True):
    """Body of POST /generate: one prompt or a list of prompts, as text or token ids.

    The reply to a list of prompts is a list.
    """

    text: str | list[str] | None = None
    input_ids: list[SmallInt | list[SmallInt]] | None = None
    sampling_params: NativeSampling | None = None
    stream: bool | None = None
    return_logprob: bool | None = None
    top_logprobs_num: NumTop | None = None
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
        "audio_data": of_prompt("this server reads text only", "", []),
        "image_data": of_prompt("this server reads text only", "", []),
        "input_embeds": of_prompt("this server reads text or token ids", []),
        "prompt": renamed("text"),
        "token_ids_logprob": absent(
            [], why="log probabilities are those of the tokens and of the most likely ones"
        ),
    }


Scored = tuple[float | None, int, str | None]
"""A scored token in SGLang's form: log probability, token id, and the text if requested."""


class MetaInfo(msgspec.Struct, kw_only=True):
    """Finish reason, token counts and log probabilities of a generation.

    `finish_reason` is null until the generation ends. Log probabilities are omitted unless requested.
    """

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    input_token_logprobs: list[Scored] | UnsetType = UNSET
    output_token_logprobs: list[Scored] | UnsetType = UNSET
    input_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET
    output_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET


class GenerateReply(msgspec.Struct, kw_only=True):
    """The reply to one prompt, or an event of its stream, which has the whole text so far.

    `index` is the index of the prompt; it is omitted unless a list of prompts is streamed.
    """

    text: str
    meta_info: MetaInfo
    index: int | UnsetType = UNSET


class ModelInfo(msgspec.Struct, kw_only=True):
    """Reply of GET /get_model_info."""

    model_path: str
    tokenizer_path: str
    is_generation: bool = True
    served_model_name: str
    max_model_len: int
    max_total_num_tokens: int
    max_running_requests: int
    vocab_size: int
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    device: str
    attention_backend: str
    schedule_policy: str
    weight_version: str
    sampling_defaults: dict[str, float]
