"""Describes the served model and the engine, under the field names of OpenAI, SGLang and vLLM."""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import asdict

from llmfw.api.admin.service import AdminService
from llmfw.api.schemas.models import ModelCard
from llmfw.api.schemas.server_info import EngineSettings, EngineState, ModelInfo, ServerInfo
from llmfw.api.text.generation import Generator
from llmfw.core.base.about import version
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.client.client import EngineClient


class ServerDescription:
    """Describes the served model and the engine.

    Args:
        client: a started engine client.
        generator: generator with the model's sampling defaults.
        admin: returns the scheduling policy, which an administrator may have changed.
    """

    def __init__(self, client: EngineClient, generator: Generator, admin: AdminService) -> None:
        self._client = client
        self._generator = generator
        self._admin = admin
        self._created = int(time.time())

    def cards(self) -> list[ModelCard]:
        """Return the cards of the model and of its adapters."""
        names = self._generator.names
        return [self._card(names.served_name), *(self._card(name) for name in names.adapters)]

    def card(self, model: str) -> ModelCard:
        """Return the card of the model or adapter that a client's name means.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        return self._card(self._generator.names.adapter_of(model) or self._generator.served_name)

    def _card(self, id: str) -> ModelCard:
        served = self._generator.served_name
        return ModelCard(
            id=id,
            created=self._created,
            root=self._root if id == served else id,
            max_model_len=self._info.max_model_len,
            parent=UNSET if id == served else served,
            weight_version=self._info.weight_version or UNSET,
        )

    async def model_info(self) -> ModelInfo:
        """Return the settings of the model and the engine, without paths."""
        return ModelInfo(
            model_path=self._root,
            tokenizer_path=self._root,
            is_generation=self._info.task == "generate",
            max_model_len=self._info.max_model_len,
            sampling_defaults=self._generator.sampling_defaults,
            **asdict(await self._settings()),
        )

    async def server_info(self) -> ServerInfo:
        """Return the settings of the model and the engine without paths, and the engine's counts."""
        stats = [each for each in await self._client.replica_stats() if each is not None]
        return ServerInfo(
            version=version(),
            model_path=self._root,
            tokenizer_path=self._root,
            is_embedding=self._info.task == "embed",
            context_length=self._info.max_model_len,
            internal_states=[_state(each) for each in stats or [await self._client.stats()]],
            **asdict(await self._settings()),
        )

    @property
    def _info(self) -> EngineInfo:
        return self._generator.info

    async def _settings(self) -> EngineSettings:
        info, policy = self._info, await self._admin.policy()
        return EngineSettings(
            served_model_name=self._generator.served_name,
            weight_version=info.weight_version,
            vocab_size=info.vocab_size,
            dtype=info.dtype,
            quantization=info.quantization,
            kv_cache_dtype=info.kv_cache_dtype,
            device=info.device,
            attention_backend=info.attention,
            schedule_policy=policy.name,
            max_running_requests=info.max_running_requests,
            max_total_num_tokens=info.max_total_tokens,
        )

    @property
    def _root(self) -> str:
        return public_root(self._info.model, self._generator.served_name)


def _state(stats: EngineStats) -> EngineState:
    return EngineState(
        num_running_reqs=stats.num_running,
        num_waiting_reqs=stats.num_waiting,
        num_used_tokens=stats.num_used_tokens,
        num_cached_tokens=stats.num_cached_tokens,
    )


def public_root(model: str, served_name: str) -> str:
    """Return the model's hub id. For a folder, return the served name, because paths are private."""
    return served_name if Path(model).is_dir() else model
