"""The options of `llmfw serve` that the engine reads: its parts, device, memory and scheduling.

Their defaults are those of EngineConfig. Knows nothing of what the engine does with them.
"""

from __future__ import annotations

import click

from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES
from llmfw.core.model.quantization.schemes import SCHEMES
from llmfw.core.schedule.cache.eviction import EVICTIONS

from .params import ChunkSize, Device, Name, Names, Text
from .setting import SettingOption, setting

GRAPH_SIZE = "Most sequences in a captured step; 0: none is captured."

# In the order of the help: parts, device, memory, scheduling.
ENGINE_SETTINGS = (
    setting(
        "--attention",
        "--attention-backend",
        field="attention",
        type=Name("attention", also=("auto",)),
        help="Attention backend; auto takes the best one that can serve the model.",
    ),
    setting(
        "--module-passes",
        field="module_passes",
        type=Names("module_pass", also=("auto", "none")),
        help="What puts faster modules into the model; auto takes all that can work on the device.",
    ),
    setting(
        "--policy",
        "--schedule-policy",
        field="policy",
        type=Name("policy"),
        help="Order in which waiting requests are admitted.",
    ),
    setting(
        "--drafter",
        field="drafter",
        type=Name("drafter", also=("none",)),
        help="What guesses tokens, of which a step then checks several at once; replies stay the same.",
    ),
    setting(
        "--draft-tokens",
        field="draft_tokens",
        help="Most guessed tokens of a request in a step.",
    ),
    setting(
        "--draft-batch-tokens",
        field="draft_batch_tokens",
        help="Most tokens of a step with guessed ones; where as many requests run, nothing is guessed.",
        unset="16 on a CPU, 256 on a GPU",
    ),
    setting(
        "--task",
        field="task",
        help="Generate text, or make embeddings; auto does what the model's files are for.",
    ),
    setting(
        "--dtype",
        field="dtype",
        type=click.Choice(("auto", "float32", "bfloat16", "float16")),
        help="Type of weights and activations; auto takes the checkpoint's where the device is fast with it.",
    ),
    setting(
        "--quantization",
        field="quantization",
        type=click.Choice(tuple(SCHEMES)),
        help="Weights of the linear layers as codes of fewer bits, made when the model is loaded.",
        unset="weights stay as they are",
    ),
    setting(
        "--device",
        field="device",
        type=Device(),
        help="auto, cpu, cuda, cuda:1; auto takes cuda if it is there.",
    ),
    setting(
        "--threads",
        field="threads",
        help="Threads of the CPU that compute.",
        unset="one for each core, no more than a container may use, or what OMP_NUM_THREADS says",
    ),
    setting(
        "--load-format",
        field="load_format",
        help="auto reads safetensors; dummy draws random weights from the config alone.",
    ),
    setting(
        "--context-length",
        field="context_length",
        help="Longest sequence in tokens, prompt and output together.",
        unset="the model's own",
    ),
    setting(
        "--mem-fraction-static",
        field="mem_fraction_static",
        help="Share of the device's memory for weights and KV storage, from 0 to 1.",
    ),
    setting(
        "--max-total-tokens",
        field="max_total_tokens",
        help="Size of the KV storage in tokens.",
        unset="what the memory share allows",
    ),
    setting(
        "--kv-cache-dtype",
        field="kv_cache_dtype",
        type=click.Choice(("auto", *KV_DTYPE_BYTES)),
        help="Type of stored keys and values; fp8 is fp8_e4m3; auto is the model's.",
    ),
    setting("--page-size", field="page_size", help="Tokens in one page of the KV storage."),
    setting(
        "--max-running-requests",
        field="max_running_requests",
        help="Most sequences in one step.",
    ),
    setting(
        "--max-queued-requests",
        field="max_queued_requests",
        help="Refuse new requests with 503 while this many wait; 0: any number may wait.",
        unset="16 for each that may run, at least 256",
    ),
    setting(
        "--max-queued-tokens",
        field="max_queued_tokens",
        help="As --max-queued-requests, by the tokens of the prompts that wait.",
        unset="8 times the KV storage, at least 1,048,576",
    ),
    setting(
        "--max-tenant-requests",
        field="max_tenant_requests",
        help="Most requests of one tenant, a named API key or a user; another one is refused with 429.",
        unset="any number",
    ),
    setting(
        "--chunked-prefill-size",
        field="chunked_prefill_size",
        type=ChunkSize(),
        help="Most prompt tokens in one step; -1 never cuts prompts.",
    ),
    setting(
        "--max-prefill-tokens",
        field="max_prefill_tokens",
        help="Most prompt tokens in one step when prompts are not cut.",
    ),
    setting(
        "--prefill-stretch",
        field="prefill_stretch",
        metavar="TIMES",
        help="A step in which others decode takes at most so many times as long for a prompt that is longer than a "
        "step; 0: any time.",
    ),
    setting(
        "--schedule-conservativeness",
        field="schedule_conservativeness",
        help="Factor on the estimate of tokens still to come; higher means fewer retractions.",
    ),
    click.option(
        "--disable-radix-cache",
        "disable_radix_cache",
        cls=SettingOption,
        is_flag=True,
        help="Never reuse the keys and values of a common prefix. Default: reuse them.",
    ),
    setting(
        "--eviction",
        field="eviction",
        type=click.Choice(tuple(EVICTIONS)),
        help="Which prefixes leave the cache first when room is needed: those used longest ago (lru), least often (lfu), "
        "or least often for their size (size).",
    ),
    setting(
        "--max-pinned-fraction",
        field="max_pinned_fraction",
        metavar="SHARE",
        help="Most of the KV storage that pinned prefixes may keep, from 0 to 1.",
    ),
    click.option(
        "--disable-overlap-schedule",
        cls=SettingOption,
        is_flag=True,
        help="Do not plan the next step while one runs. Default: by device.",
    ),
    setting(
        "--cuda-graph",
        field="cuda_graph",
        help="Capture decode steps on a GPU: on, before the server answers; lazy, each size when it is first met.",
    ),
    setting("--cuda-graph-max-bs", field="cuda_graph_max_bs", help=GRAPH_SIZE, unset="512"),
    setting(
        "--stream-interval",
        field="stream_interval",
        help="Tokens in one event of a stream; more cost less of the processor's time, and come less often.",
    ),
    setting(
        "--batch-share",
        field="batch_share",
        metavar="SHARE",
        help="Part of each step that batch jobs may take beside live requests, from 0 (only what these leave) to 1.",
    ),
    setting(
        "--record-requests",
        field="record_requests",
        type=Text(),
        metavar="FILE",
        help="Write when requests came and how long they were, for `llmfw simulate`; no text can be read from it.",
        unset="nothing is recorded",
    ),
    setting(
        "--record-steps",
        field="record_steps",
        type=Text(),
        metavar="FILE",
        help="Write every step, with the token ids of prompts and outputs, for `llmfw debug replay`. For bug reports.",
        unset="nothing is recorded",
    ),
    click.option(
        "--random-seed",
        cls=SettingOption,
        unset="drawn at each start",
        type=click.IntRange(0, 2**63 - 1),
        help="Seed of requests that bring none. Default: drawn at each start.",
    ),
    setting(
        "--trace-requests",
        field="trace_requests",
        metavar="N",
        help="Keep what is decided about the last N requests, for 'llmfw trace', and log it at level debug; 0: nothing.",
    ),
)
