"""Replies of GET /version and GET /server_info."""

from __future__ import annotations

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


class ServerInfo(msgspec.Struct, kw_only=True):
    """Reply of GET /server_info: settings under SGLang's names, and the engine's counts.

    `model_path` and `tokenizer_path` are a hub id; for a folder they are the served name, because paths are
    private. `internal_states` has one item, because a server has one engine.
    """

    version: str
    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_embedding: bool
    weight_version: str
    context_length: int
    vocab_size: int
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    device: str
    attention_backend: str
    schedule_policy: str
    max_running_requests: int
    max_total_num_tokens: int
    internal_states: list[EngineState]
