"""SGLang's native API: /generate and /get_model_info."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .common import UNCONSTRAINED, UNSUPPORTED, Body, SmallInt


class NativeSampling(Body, kw_only=True):
    """`sampling_params`: the names are SGLang's where they differ from OpenAI's."""

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

    refused: ClassVar[dict[str, str]] = {
        **UNSUPPORTED,
        **UNCONSTRAINED,
        "n": "one continuation for each request",
    }

    def asks(self, name: str, value: Any) -> bool:
        return value not in (None, 1) if name == "n" else super().asks(name, value)


class GenerateRequest(Body, kw_only=True):
    """Body of POST /generate: one prompt, as text or token ids."""

    text: str | None = None
    input_ids: list[SmallInt] | None = None
    sampling_params: NativeSampling | None = None
    stream: bool | None = None

    refused: ClassVar[dict[str, str]] = {
        **UNSUPPORTED,
        **UNCONSTRAINED,
        "audio_data": "this server reads text only",
        "image_data": "this server reads text only",
        "input_embeds": "this server reads text or token ids",
        "return_logprob": "log probabilities are not supported yet",
        "top_logprobs_num": "log probabilities are not supported yet",
        "token_ids_logprob": "log probabilities are not supported yet",
    }


class MetaInfo(msgspec.Struct, kw_only=True):
    """Facts on a generation. `finish_reason` is null until it ends."""

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class GenerateReply(msgspec.Struct, kw_only=True):
    """The reply; in a stream each event holds the whole text so far."""

    text: str
    meta_info: MetaInfo


class ModelInfo(msgspec.Struct, kw_only=True):
    """Body of GET /get_model_info."""

    model_path: str
    tokenizer_path: str
    is_generation: bool = True
    served_model_name: str
    max_model_len: int
    max_total_num_tokens: int
    max_running_requests: int
    vocab_size: int
    dtype: str
    device: str
    attention_backend: str
    schedule_policy: str
    weight_version: str
    sampling_defaults: dict[str, float]
