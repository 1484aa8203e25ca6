"""The core of llmfw, and the one place that plugin authors import from: `from llmfw.core import hookimpl, SchedulePolicy`.

Importing this package imports nothing heavy: each name's module is imported at the first access to the name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from .base.config import ServerConfig as ServerConfig
    from .base.control import AdapterInfo as AdapterInfo
    from .base.control import AdapterList as AdapterList
    from .base.control import Answer as Answer
    from .base.control import CacheView as CacheView
    from .base.control import Command as Command
    from .base.control import FlushCache as FlushCache
    from .base.control import GetMemory as GetMemory
    from .base.control import GetPolicy as GetPolicy
    from .base.control import GetTrace as GetTrace
    from .base.control import ListAdapters as ListAdapters
    from .base.control import LoadAdapter as LoadAdapter
    from .base.control import LogLevelInfo as LogLevelInfo
    from .base.control import MemoryInfo as MemoryInfo
    from .base.control import PinInfo as PinInfo
    from .base.control import PinPrefix as PinPrefix
    from .base.control import PolicyInfo as PolicyInfo
    from .base.control import PrefixInfo as PrefixInfo
    from .base.control import RequestTrace as RequestTrace
    from .base.control import SetLogLevel as SetLogLevel
    from .base.control import SetPolicy as SetPolicy
    from .base.control import Sleep as Sleep
    from .base.control import TraceEntry as TraceEntry
    from .base.control import UnloadAdapter as UnloadAdapter
    from .base.control import UnpinPrefix as UnpinPrefix
    from .base.control import ViewCache as ViewCache
    from .base.control import Wake as Wake
    from .base.engine_info import ComponentUse as ComponentUse
    from .base.engine_info import EngineInfo as EngineInfo
    from .base.engine_info import EngineStats as EngineStats
    from .base.engine_info import StepSeconds as StepSeconds
    from .base.errors import ComponentError as ComponentError
    from .base.errors import ComponentFailedError as ComponentFailedError
    from .base.errors import ConfigError as ConfigError
    from .base.errors import ConflictError as ConflictError
    from .base.errors import ContentLostError as ContentLostError
    from .base.errors import ContextLengthError as ContextLengthError
    from .base.errors import CrashingRequestError as CrashingRequestError
    from .base.errors import DeadlineError as DeadlineError
    from .base.errors import EngineDeadError as EngineDeadError
    from .base.errors import EngineError as EngineError
    from .base.errors import EngineLostError as EngineLostError
    from .base.errors import EngineRestartingError as EngineRestartingError
    from .base.errors import LLMFWError as LLMFWError
    from .base.errors import LostComponentError as LostComponentError
    from .base.errors import MissingScopeError as MissingScopeError
    from .base.errors import ModelError as ModelError
    from .base.errors import ModelNotFoundError as ModelNotFoundError
    from .base.errors import NotFoundError as NotFoundError
    from .base.errors import NotReadyError as NotReadyError
    from .base.errors import OverloadedError as OverloadedError
    from .base.errors import PluginError as PluginError
    from .base.errors import RateLimitError as RateLimitError
    from .base.errors import RequestError as RequestError
    from .base.errors import StorageDamagedError as StorageDamagedError
    from .base.errors import StorageError as StorageError
    from .base.errors import StorageFullError as StorageFullError
    from .base.errors import TenantLimitError as TenantLimitError
    from .base.errors import TooLargeError as TooLargeError
    from .base.errors import UnknownComponentError as UnknownComponentError
    from .base.errors import UnreadableRequestError as UnreadableRequestError
    from .base.histogram import Histogram as Histogram
    from .base.image import Image as Image
    from .base.media import MediaArray as MediaArray
    from .base.media import MediaPrompt as MediaPrompt
    from .base.media import MediaSpan as MediaSpan
    from .base.replica_commands import AddReplica as AddReplica
    from .base.replica_commands import DrainReplica as DrainReplica
    from .base.replica_commands import ListReplicas as ListReplicas
    from .base.replica_commands import RemoveReplica as RemoveReplica
    from .base.replica_commands import ReplicaInfo as ReplicaInfo
    from .base.replica_commands import ReplicaList as ReplicaList
    from .base.replica_commands import UndrainReplica as UndrainReplica
    from .base.request import EmbedRequest as EmbedRequest
    from .base.request import FinishReason as FinishReason
    from .base.request import GrammarSpec as GrammarSpec
    from .base.request import Request as Request
    from .base.request import SamplingParams as SamplingParams
    from .base.request import Thinking as Thinking
    from .base.request import TokenEvent as TokenEvent
    from .base.request import TokenLogprob as TokenLogprob
    from .base.request import Wait as Wait
    from .base.steps_view import RequestView as RequestView
    from .base.steps_view import StepsView as StepsView
    from .base.steps_view import StepView as StepView
    from .base.steps_view import ViewSteps as ViewSteps
    from .base.weights_command import LoadWeights as LoadWeights
    from .base.weights_command import WeightsInfo as WeightsInfo
    from .client.client import EngineClient as EngineClient
    from .client.client import ReplicaState as ReplicaState
    from .client.client import RequestWatch as RequestWatch
    from .interfaces.adapter_source import AdapterSource as AdapterSource
    from .interfaces.attention import AttentionBackend as AttentionBackend
    from .interfaces.authenticator import Authenticator as Authenticator
    from .interfaces.authenticator import Credentials as Credentials
    from .interfaces.authenticator import Principal as Principal
    from .interfaces.authenticator import Refusal as Refusal
    from .interfaces.batch_store import ENDED as ENDED
    from .interfaces.batch_store import BatchError as BatchError
    from .interfaces.batch_store import BatchRecord as BatchRecord
    from .interfaces.batch_store import BatchResults as BatchResults
    from .interfaces.batch_store import BatchStore as BatchStore
    from .interfaces.batch_store import BatchUsage as BatchUsage
    from .interfaces.batch_store import LineCrash as LineCrash
    from .interfaces.batch_store import LineResult as LineResult
    from .interfaces.chat_template import ChatTemplate as ChatTemplate
    from .interfaces.chat_template import Message as Message
    from .interfaces.drafter import DraftedRequest as DraftedRequest
    from .interfaces.drafter import Drafter as Drafter
    from .interfaces.drafter import SequenceDrafter as SequenceDrafter
    from .interfaces.eviction_rule import CacheLeaf as CacheLeaf
    from .interfaces.eviction_rule import EvictionRule as EvictionRule
    from .interfaces.file_store import Describe as Describe
    from .interfaces.file_store import FileRecord as FileRecord
    from .interfaces.file_store import FileStore as FileStore
    from .interfaces.forward_batch import ForwardBatch as ForwardBatch
    from .interfaces.grammar import Grammar as Grammar
    from .interfaces.grammar import GrammarBackend as GrammarBackend
    from .interfaces.kv_storage import KVStorage as KVStorage
    from .interfaces.layers import LayerSpec as LayerSpec
    from .interfaces.lazy_command import LazyCommand as LazyCommand
    from .interfaces.logits_processor import LogitsProcessor as LogitsProcessor
    from .interfaces.logits_processor import ProcessedRequest as ProcessedRequest
    from .interfaces.logits_processor import ProcessedRows as ProcessedRows
    from .interfaces.logits_processor import ProcessorContext as ProcessorContext
    from .interfaces.media_processor import MediaProcessor as MediaProcessor
    from .interfaces.middleware import ASGIApplication as ASGIApplication
    from .interfaces.middleware import ASGIMessage as ASGIMessage
    from .interfaces.middleware import ASGIReceive as ASGIReceive
    from .interfaces.middleware import ASGIScope as ASGIScope
    from .interfaces.middleware import ASGISend as ASGISend
    from .interfaces.middleware import HTTPMiddleware as HTTPMiddleware
    from .interfaces.model_adapter import Attend as Attend
    from .interfaces.model_adapter import ModelAdapter as ModelAdapter
    from .interfaces.model_source import ModelSource as ModelSource
    from .interfaces.module_pass import ModulePass as ModulePass
    from .interfaces.observer import RequestEnded as RequestEnded
    from .interfaces.observer import RequestEvent as RequestEvent
    from .interfaces.observer import RequestFirstToken as RequestFirstToken
    from .interfaces.observer import RequestObserver as RequestObserver
    from .interfaces.observer import RequestStarted as RequestStarted
    from .interfaces.operation import Operation as Operation
    from .interfaces.operation import describe as describe
    from .interfaces.parsers import CallFormat as CallFormat
    from .interfaces.parsers import ContentDelta as ContentDelta
    from .interfaces.parsers import MessageMarks as MessageMarks
    from .interfaces.parsers import ReasoningDelta as ReasoningDelta
    from .interfaces.parsers import ReasoningParser as ReasoningParser
    from .interfaces.parsers import ToolCallDelta as ToolCallDelta
    from .interfaces.parsers import ToolParser as ToolParser
    from .interfaces.policy import Figures as Figures
    from .interfaces.policy import Ordering as Ordering
    from .interfaces.policy import Places as Places
    from .interfaces.policy import Running as Running
    from .interfaces.policy import SchedulePolicy as SchedulePolicy
    from .interfaces.policy import Waiting as Waiting
    from .interfaces.quantization_scheme import LinearLayer as LinearLayer
    from .interfaces.quantization_scheme import QuantizationScheme as QuantizationScheme
    from .interfaces.quantized_format import QuantizedFormat as QuantizedFormat
    from .interfaces.quantized_format import StoredLayer as StoredLayer
    from .interfaces.request_field import RequestField as RequestField
    from .interfaces.response_store import ResponseRecord as ResponseRecord
    from .interfaces.response_store import ResponseStore as ResponseStore
    from .interfaces.route_services import Caller as Caller
    from .interfaces.route_services import CallerFiles as CallerFiles
    from .interfaces.route_services import Classifications as Classifications
    from .interfaces.route_services import ContinuationScore as ContinuationScore
    from .interfaces.route_services import Embeddings as Embeddings
    from .interfaces.route_services import GeneratedText as GeneratedText
    from .interfaces.route_services import RouteServices as RouteServices
    from .interfaces.route_services import Scores as Scores
    from .interfaces.route_services import TextPiece as TextPiece
    from .interfaces.router import ReplicaView as ReplicaView
    from .interfaces.router import RoutedRequest as RoutedRequest
    from .interfaces.router import Router as Router
    from .interfaces.scopes import SCOPES as SCOPES
    from .interfaces.server_api import Failure as Failure
    from .interfaces.server_api import ServedModel as ServedModel
    from .interfaces.server_api import ServerAPI as ServerAPI
    from .interfaces.tenant_limits import TenantLimits as TenantLimits
    from .interfaces.token_sampler import Filters as Filters
    from .interfaces.token_sampler import RowNumbers as RowNumbers
    from .interfaces.token_sampler import TokenSampler as TokenSampler
    from .interfaces.tokenizer import IncrementalDetokenizer as IncrementalDetokenizer
    from .interfaces.tokenizer import Tokenizer as Tokenizer
    from .interfaces.weight_loader import StoredTensor as StoredTensor
    from .interfaces.weight_loader import WeightLoader as WeightLoader
    from .plugin.broken_plugin import BrokenPlugin as BrokenPlugin
    from .plugin.hookspecs import HookSpecs as HookSpecs
    from .plugin.hookspecs import Register as Register
    from .plugin.hookspecs import RegisterRoute as RegisterRoute
    from .plugin.plugins import LoadedPlugin as LoadedPlugin
    from .plugin.plugins import Plugins as Plugins
    from .plugin.plugins import load_plugins as load_plugins
    from .plugin.registry import Entry as Entry
    from .plugin.registry import Registry as Registry

hookimpl = pluggy.HookimplMarker("llmfw")

_HOMES = {
    ".base.control": (
        "AdapterInfo",
        "AdapterList",
        "Answer",
        "CacheView",
        "Command",
        "FlushCache",
        "GetMemory",
        "GetPolicy",
        "GetTrace",
        "ListAdapters",
        "LoadAdapter",
        "LogLevelInfo",
        "MemoryInfo",
        "PinInfo",
        "PinPrefix",
        "PolicyInfo",
        "PrefixInfo",
        "RequestTrace",
        "SetLogLevel",
        "SetPolicy",
        "Sleep",
        "TraceEntry",
        "UnloadAdapter",
        "UnpinPrefix",
        "ViewCache",
        "Wake",
    ),
    ".base.config": ("ServerConfig",),
    ".base.errors": (
        "ConfigError",
        "ConflictError",
        "ContentLostError",
        "ContextLengthError",
        "CrashingRequestError",
        "UnreadableRequestError",
        "DeadlineError",
        "EngineDeadError",
        "EngineError",
        "EngineLostError",
        "EngineRestartingError",
        "LLMFWError",
        "LostComponentError",
        "ModelError",
        "MissingScopeError",
        "ModelNotFoundError",
        "NotFoundError",
        "NotReadyError",
        "OverloadedError",
        "ComponentError",
        "ComponentFailedError",
        "PluginError",
        "RateLimitError",
        "RequestError",
        "StorageDamagedError",
        "StorageError",
        "StorageFullError",
        "TenantLimitError",
        "TooLargeError",
        "UnknownComponentError",
    ),
    ".base.engine_info": ("ComponentUse", "EngineInfo", "EngineStats", "StepSeconds"),
    ".base.histogram": ("Histogram",),
    ".base.replica_commands": (
        *("AddReplica", "DrainReplica", "ListReplicas", "RemoveReplica"),
        *("ReplicaInfo", "ReplicaList", "UndrainReplica"),
    ),
    ".base.steps_view": ("RequestView", "StepView", "StepsView", "ViewSteps"),
    ".base.image": ("Image",),
    ".base.media": ("MediaArray", "MediaPrompt", "MediaSpan"),
    ".base.request": (
        "EmbedRequest",
        "Wait",
        "FinishReason",
        "GrammarSpec",
        "Request",
        "SamplingParams",
        "Thinking",
        "TokenEvent",
        "TokenLogprob",
    ),
    ".client.client": ("EngineClient", "ReplicaState", "RequestWatch"),
    ".base.weights_command": ("LoadWeights", "WeightsInfo"),
    ".interfaces.attention": ("AttentionBackend",),
    ".interfaces.authenticator": ("Authenticator", "Credentials", "Principal", "Refusal"),
    ".interfaces.batch_store": (
        "LineCrash",
        "BatchError",
        "BatchRecord",
        "BatchResults",
        "BatchStore",
        "BatchUsage",
        "ENDED",
        "LineResult",
    ),
    ".interfaces.chat_template": ("ChatTemplate", "Message"),
    ".interfaces.drafter": ("DraftedRequest", "Drafter", "SequenceDrafter"),
    ".interfaces.file_store": ("Describe", "FileRecord", "FileStore"),
    ".interfaces.forward_batch": ("ForwardBatch",),
    ".interfaces.grammar": ("Grammar", "GrammarBackend"),
    ".interfaces.kv_storage": ("KVStorage",),
    ".interfaces.layers": ("LayerSpec",),
    ".interfaces.lazy_command": ("LazyCommand",),
    ".interfaces.logits_processor": (
        "LogitsProcessor",
        "ProcessedRequest",
        "ProcessedRows",
        "ProcessorContext",
    ),
    ".interfaces.media_processor": ("MediaProcessor",),
    ".interfaces.middleware": (
        "ASGIApplication",
        "ASGIMessage",
        "ASGIReceive",
        "ASGIScope",
        "ASGISend",
        "HTTPMiddleware",
    ),
    ".interfaces.model_source": ("ModelSource",),
    ".interfaces.model_adapter": ("Attend", "ModelAdapter"),
    ".interfaces.module_pass": ("ModulePass",),
    ".interfaces.parsers": (
        "CallFormat",
        "ContentDelta",
        "MessageMarks",
        "ReasoningDelta",
        "ReasoningParser",
        "ToolCallDelta",
        "ToolParser",
    ),
    ".interfaces.adapter_source": ("AdapterSource",),
    ".interfaces.policy": (
        "Figures",
        "Ordering",
        "Places",
        "Running",
        "SchedulePolicy",
        "Waiting",
    ),
    ".interfaces.quantization_scheme": ("LinearLayer", "QuantizationScheme"),
    ".interfaces.quantized_format": ("QuantizedFormat", "StoredLayer"),
    ".interfaces.request_field": ("RequestField",),
    ".interfaces.response_store": ("ResponseRecord", "ResponseStore"),
    ".interfaces.observer": (
        "RequestEnded",
        "RequestEvent",
        "RequestFirstToken",
        "RequestObserver",
        "RequestStarted",
    ),
    ".interfaces.eviction_rule": ("CacheLeaf", "EvictionRule"),
    ".interfaces.operation": ("Operation", "describe"),
    ".interfaces.scopes": ("SCOPES",),
    ".interfaces.tenant_limits": ("TenantLimits",),
    ".interfaces.route_services": (
        "Caller",
        "CallerFiles",
        "Classifications",
        "ContinuationScore",
        "Embeddings",
        "GeneratedText",
        "RouteServices",
        "Scores",
        "TextPiece",
    ),
    ".interfaces.server_api": ("Failure", "ServedModel", "ServerAPI"),
    ".interfaces.tokenizer": ("IncrementalDetokenizer", "Tokenizer"),
    ".interfaces.router": ("ReplicaView", "RoutedRequest", "Router"),
    ".interfaces.token_sampler": ("Filters", "RowNumbers", "TokenSampler"),
    ".interfaces.weight_loader": ("StoredTensor", "WeightLoader"),
    ".plugin.broken_plugin": ("BrokenPlugin",),
    ".plugin.hookspecs": ("HookSpecs", "Register", "RegisterRoute"),
    ".plugin.plugins": ("LoadedPlugin", "Plugins", "load_plugins"),
    ".plugin.registry": ("Entry", "Registry"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
