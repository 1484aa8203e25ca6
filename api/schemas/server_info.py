"""Replies of GET /version, GET /server_info and GET /get_model_info."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Version(msgspec.Struct):
    """Reply of GET /version: the version of llmfw."""

    version: str


class EngineState(msgspec.Struct, kw_only=True):
    """Counts of the engine at one moment."""

    num_running_reqs: int
    num_waiting_reqs: int
    num_used_tokens: int
    num_cached_tokens: int


class EngineSettings(msgspec.Struct, kw_only=True):
    """Settings of the model and the engine, under SGLang's names."""

    served_model_name: str
    weight_version: str
    vocab_size: int
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    device: str
    attention_backend: str
    schedule_policy: str
    max_running_requests: int
    max_total_num_tokens: int


class ModelInfo(EngineSettings, kw_only=True):
    """Reply of GET /get_model_info."""

    model_path: str
    tokenizer_path: str
    is_generation: bool
    max_model_len: int
    sampling_defaults: Mapping[str, float]


class ServerInfo(EngineSettings, kw_only=True):
    """Reply of GET /server_info: settings under SGLang's names, and the engine's counts.

    `model_path` and `tokenizer_path` are a hub id; for a folder they are the served name, because paths are
    private. `internal_states` has one item for each engine that runs.
    """

    version: str
    model_path: str
    tokenizer_path: str
    is_embedding: bool
    context_length: int
    internal_states: list[EngineState]
