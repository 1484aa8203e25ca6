"""The settings of adapters, of both processes."""

# Annotations are not postponed, as in `config`.
from typing import Annotated

from .adapter_name import fault_of_adapter
from .setting import Setting
from .setting_types import AboveZero, Count, Positive

# fmt: off
Adapters = Annotated[tuple[str, ...], Setting(
    "Serve the LoRA adapter in the folder PATH as the model NAME; repeatable.", flag="--adapter",
    aliases=("--lora-paths", "--lora-modules"), unset="no adapter is loaded at the start", metavar="NAME=PATH", group="Adapters",
    check=fault_of_adapter)]
MaxAdapters = Annotated[Count | None, Setting(
    "Maximum number of adapters in a step: slots, which take memory of the model's device; 0: none can be loaded.",
    aliases=("--max-loras", "--max-loras-per-batch"), unset="as many as --adapter names")]
MaxLoadedAdapters = Annotated[Positive | None, Setting(
    "Maximum number of loaded adapters. Those without a slot are kept in host memory, and come into a slot when requests need them.",
    aliases=("--max-cpu-loras", "--max-loaded-loras"), unset="as many as there are slots")]
MaxAdapterRank = Annotated[Positive | None, Setting(
    "Highest rank of an adapter.", aliases=("--max-lora-rank",), unset="the highest rank of the --adapter folders, at least 16")]
AdapterSourceName = Annotated[str, Setting(
    "Ask this component for adapters that requests name and that are not loaded.",
    kind="adapter_source", words=("none",), group="Adapters")]
AdapterSourceTimeout = Annotated[AboveZero, Setting(
    "Reply 503 if the adapter source takes longer than this.", metavar="SECONDS")]
