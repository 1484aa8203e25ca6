"""Settings, read once from the command line and frozen.

Two structs: what the engine process needs and what the API process needs. They hold what a user may choose;
what follows from the device (how many pages fit) is a result of the engine, not a field here. Options of a part
are not fields either: they travel in `options` and are checked by the part's own `Options`.

Which values a field may have stands in its annotation; with any other a struct cannot be made (ConfigError).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .values import check_fields

OptionValue = str | int | float | bool | list[Any] | dict[str, Any]
"""Of an option of a part: a text is converted to the type that the part declares; what is not a text must fit."""

LogLevel = Literal["debug", "info", "warning", "error"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the engine process.

    Attributes:
        model: folder or hub id of weights and tokenizer, already resolved from a registered model's name.
        task: "generate", "embed", or "auto": what the model's files say.
        load_format: "auto" reads safetensors; "dummy" draws random weights from the config alone.
        dtype: "auto" (the checkpoint's, or float32 on a CPU without bf16 instructions) or a torch dtype's name.
        quantization: weights of the linear layers as codes of fewer bits: "int8" or "int4"; None: as they are.
        device: "auto" (cuda if there is one), "cpu", "cuda", "cuda:1".
        threads: of a CPU that compute; None: as many as torch takes, a thread for each core, within a container's
            limit.
        attention, policy: names of parts; "auto" takes the best attention backend that can serve the model.
        module_passes: names of module passes, separated by commas; "auto": all that can work; "none": none.
        grammar: name of the grammar backend; "auto" takes the best installed one; "none": no structured output.
        drafter: name of the part that drafts tokens for steps to check; "none": each step brings one token a sequence.
        draft_tokens: most drafted tokens of a sequence in a step.
        draft_batch_tokens: most tokens of a step that holds drafts, the last one of each sequence counted; None: by device.
        kv_cache_dtype: of stored keys and values: "fp8_e4m3" and others, see `kv.dtype`; "auto": the model's.
        page_size: tokens in one page of KV storage.
        context_length: longest sequence, prompt and output together; None: the model's own.
        mem_fraction_static: share of the device's memory for weights and KV storage; None: by device.
        max_total_tokens: size of the KV storage in tokens; None: as much as the memory fraction allows.
        max_running_requests: most sequences in one step; None: by device.
        chunked_prefill_size: most prompt tokens in one step; None: by device; -1: prompts are never cut.
        max_prefill_tokens: most prompt tokens in one step when prompts are not cut.
        schedule_conservativeness: scales the estimate of tokens still to come; higher means fewer retractions.
        overlap: schedule the next step while one runs; None: by device.
        cuda_graph: "on": steps of single tokens are captured when the engine starts; "lazy": when one of their size is
            first met; "off": never. Without a GPU none is.
        cuda_graph_max_bs: most sequences in a captured step; None: 512, or as many as may run; 0: as "off".
        stream_interval: tokens of a request in one event, but for its first and its last.
        batch_share: of a step's sequences and prompt tokens, what deferrable requests may take beside others; 0: they
            run in steps of their own, while no other request runs or waits.
        prefill_stretch: a step with a piece of a prompt that is longer than a step may take so many times what one
            without takes, where others decode; 0: any time.
        max_queued_requests: most requests that wait; another one is refused. None: 16 for each that may run, at least
            256; 0: any number. Deferrable ones do not count.
        max_queued_tokens: most tokens of their prompts. None: 8 times what the KV storage holds, at least 1,048,576; 0:
            any number.
        max_tenant_requests: of one tenant, waiting and running; None: any number.
        eviction: by which rule prefixes leave the cache: "lru", "lfu" or "size".
        max_pinned_fraction: most of the KV storage that pinned prefixes may keep.
        trace_requests: for so many of the last requests, what was decided about them is kept; 0: for none.
        record_requests: file that a line is written to for each request that ends, see `engine.recorder`; None: none.
        record_steps: file that every step is written to, for `llmfw debug replay`; None: none.
        random_seed: from which the seeds of requests without one are drawn.
        options: "part.key" → value, for the parts' own options.
        disabled_plugins: names of plugins that are not loaded.
    """

    model: str
    task: Literal["auto", "generate", "embed"] = "auto"
    load_format: Literal["auto", "dummy"] = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    device: str = "auto"
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    attention: str = "auto"
    module_passes: str = "auto"
    policy: str = "lpm"
    grammar: str = "auto"
    drafter: str = "none"
    draft_tokens: Positive = 8
    draft_batch_tokens: Positive | None = None
    kv_cache_dtype: str = "auto"
    page_size: Positive = 1
    context_length: Positive | None = None
    mem_fraction_static: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    max_total_tokens: Positive | None = None
    max_running_requests: Positive | None = None
    chunked_prefill_size: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    max_prefill_tokens: Positive = 16384
    schedule_conservativeness: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    disable_radix_cache: bool = False
    overlap: bool | None = None
    cuda_graph: Literal["on", "lazy", "off"] = "on"
    cuda_graph_max_bs: Count | None = None
    stream_interval: Positive = 1
    batch_share: Share = 0.0
    prefill_stretch: Annotated[float, msgspec.Meta(ge=0)] = 1.5
    max_queued_requests: Count | None = None
    max_queued_tokens: Count | None = None
    max_tenant_requests: Positive | None = None
    eviction: str = "lru"
    max_pinned_fraction: Share = 0.25
    trace_requests: Count = 0
    record_requests: str | None = None
    record_steps: str | None = None
    random_seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    log_level: LogLevel = "info"
    decode_log_interval: Positive = 40
    options: dict[str, OptionValue] = {}
    disabled_plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError if a field has a value that it cannot have."""
        check_fields(type(self), msgspec.structs.asdict(self))


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the API process.

    Attributes:
        api_key: (name, key) pairs; clients must send one of these keys. A key may be given as "sha256:HEX". What
            requests with a named key make belongs to the tenant of that name. Without keys no key is asked for.
        api_key_file: path of a file with more of them, NAME=KEY on each line, which is read again when it changes.
        admin_api_key: opens /admin, and everything that belongs to any tenant. None: the only key opens /admin, or,
            without keys, clients on this machine do.
        admin_api_key_file: path of a file with more of them, a key on each line.
        adopt_unowned: tenant to which files, batches and responses belong that were made without a key. None: the
            only tenant, or, if there are several, none.
        storage: folder for what has to survive a restart; None: nothing does.
        file_store, batch_store, response_store: names of the parts that keep uploaded files, batch jobs and
            responses; "auto": in the folder if there is one, else in memory.
        response_ttl_days: a stored conversation goes so long after its last response.
        response_store_mb: room for stored responses.
        sampling_defaults: "model": what its generation_config.json says; "openai": temperature 1, top_p 1.
        grammar_timeout: seconds of CPU time that compiling a client's grammar may take; twice as many seconds in all.
        grammar_memory_mb: MiB that it may take.
        grammar_workers: most processes that compile quick grammars at once; slow ones have one fewer, but at least one.
        reasoning_field: of a message, for the thinking: "reasoning_content", "reasoning" or "both".
        strict_params: a field that would change nothing is an error instead of being reported as ignored.
        allow_host, allow_origin: values of `Host` and `Origin` that are answered, in addition to this machine's; "*":
            any. Checked if there are some, or if there is no API key and `host` is a loopback address.
        max_connections, max_connections_per_address: open at a time.
        max_header_bytes: size of a request's line and headers together.
        max_headers: number of header fields.
        max_url_bytes: size of path and query together.
        header_timeout: seconds from the first byte of a request to the end of its headers.
        body_timeout: seconds for a body, in addition to one for each KiB that has arrived.
        send_timeout: seconds for a client to read what waits for it, in addition to one for each KiB that it reads.
        idle_timeout: seconds between two requests of a connection.
        max_body_mb: size of one JSON body in MiB.
        max_buffered_mb: size of all JSON bodies that are being received, in MiB.
        max_json_depth: nested objects and arrays of a body.
        max_json_values: values of a body of any kind.
        max_json_nodes: objects, arrays and member names of a body.
        max_messages: messages of a chat, and parts of one message.
        min_free_disk_mb: MiB of the disk that uploads leave free, but at most a twentieth of the disk.
        max_logit_bias: entries of logit_bias.
        restart: whether an engine that died or hangs is started again.
        max_restarts_per_hour: past it the server ends, with an exit code of its own.
        watchdog_timeout: seconds that the engine may take for one step before it counts as hung; 0: any time.
    """

    served_model_name: str
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 30000
    api_key: tuple[tuple[str, str], ...] = ()
    api_key_file: str | None = None
    admin_api_key: str | None = None
    admin_api_key_file: str | None = None
    adopt_unowned: str | None = None
    chat_template: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    storage: str | None = None
    file_store: str = "auto"
    batch_store: str = "auto"
    response_store: str = "auto"
    response_ttl_days: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    response_store_mb: Positive = 256
    reasoning_field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    sampling_defaults: Literal["model", "openai"] = "model"
    strict_params: bool = False
    restart: Literal["on-failure", "never"] = "on-failure"
    max_restarts_per_hour: Count = 30
    watchdog_timeout: Annotated[float, msgspec.Meta(ge=0)] = 300.0

    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    max_connections: Positive = 4096
    max_connections_per_address: Positive = 1024
    max_header_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 64 * 1024
    max_headers: Annotated[int, msgspec.Meta(ge=8)] = 100
    max_url_bytes: Annotated[int, msgspec.Meta(ge=256)] = 8192
    header_timeout: Seconds = 10.0
    body_timeout: Seconds = 30.0
    send_timeout: Seconds = 60.0
    idle_timeout: Seconds = 75.0
    max_body_mb: Positive = 16
    max_buffered_mb: Positive = 256
    max_json_depth: Annotated[int, msgspec.Meta(ge=8, le=500)] = 100
    max_json_values: Positive = 1_000_000
    max_json_nodes: Positive = 100_000
    max_messages: Positive = 2048
    min_free_disk_mb: Count = 1024
    max_logit_bias: Positive = 16_384

    grammar: str = "auto"
    grammar_timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    grammar_memory_mb: Positive = 512
    grammar_workers: Positive = 2
    log_level: LogLevel = "info"
    options: dict[str, OptionValue] = {}
    disabled_plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError if a field has a value that it cannot have."""
        check_fields(type(self), msgspec.structs.asdict(self))
