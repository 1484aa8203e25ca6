"""Settings, each declared once, read once from the command line and frozen.

`EngineConfig` holds the settings of the engine process, `ServerConfig` those of the API process. Both hold
only what a user may choose. The engine computes values that depend on the device, such as how many pages fit.
Options of a component are not fields: the field `options` holds them, and the component's own `Options` class
checks them.

The annotation of a field defines its allowed values; constructing a struct with any other value raises
ConfigError. The `Setting` in the annotation describes the field for users. The options of the command line,
the environment variables, the keys of the config file and the tables of the docs are generated from both.
"""

# Annotations are not postponed: evaluating them from text would make `llmfw serve --help` 10 % slower.
from typing import Annotated, Literal

import msgspec

from . import adapter_settings, weights_settings
from .errors import ConfigError
from .replica_place import ReplicaPlace
from .setting import Setting, check_fields
from .setting_types import (
    AboveZero,
    ComponentOptions,
    Count,
    DeviceName,
    DisabledPlugins,
    Grammar,
    LogFile,
    LogFormat,
    LogLevel,
    Positive,
    Ranks,
    Share,
    TenantName,
)

# fmt: off


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the engine process. `None` stands for the default that the help states.

    `model` is a folder or a hub id. Callers replace the name of a registered model with its folder
    beforehand. `place` follows from `--replicas`; users cannot set it.
    """

    model: str
    task: Annotated[Literal["auto", "generate", "embed", "classify"], Setting(
        "Generate text, make embeddings or score texts by a classification head; auto: what the model's files are for.", group="Model")] = "auto"
    context_length: Annotated[Positive | None, Setting(
        "Maximum length of a sequence in tokens, prompt and output together.", unset="the model's own")] = None
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Setting(
        "Type of weights and activations; auto: the checkpoint's, or float32 on a CPU without bfloat16 "
        "instructions.")] = "auto"
    quantization: Annotated[str | None, Setting(
        "Quantize the weights of the linear layers by this scheme when the model is loaded.",
        unset="weights stay as they are", kind="quantization_scheme")] = None
    load_format: Annotated[Literal["auto", "dummy"], Setting(
        "auto: read the weights. dummy: draw random weights from config.json alone.")] = "auto"
    weight_loader: Annotated[str, Setting(
        "Read the weights by this loader; auto: the one whose format the model's folder has.",
        kind="weight_loader", words=("auto",))] = "auto"
    model_adapter: Annotated[str, Setting(
        "Make a model's layers use llmfw's attention by this adapter; auto: the one for the model's type, if there is "
        "one.", kind="model_adapter", words=("auto", "none"))] = "auto"
    device: Annotated[DeviceName, Setting(
        "Device to compute on: auto, cpu, cuda, cuda:1, …; auto: cuda if there is one.", metavar="DEVICE")] = "auto"
    threads: Annotated[Annotated[int, msgspec.Meta(ge=1, le=1024)] | None, Setting(
        "CPU threads that compute.", unset="one per core within a container's limit, or OMP_NUM_THREADS")] = None
    tp: Ranks = 1

    attention: Annotated[str, Setting(
        "Attention backend; auto: the best one that can serve the model.",
        aliases=("--attention-backend",), kind="attention", words=("auto",), group="Components")] = "auto"
    prefill_attention: Annotated[str | None, Setting(
        "Attention backend for prompts; auto: the best one that can serve the model.",
        aliases=("--prefill-attention-backend",), unset="the one of --attention; with --attention auto, the best",
        kind="attention", words=("auto",))] = None
    module_passes: Annotated[str, Setting(
        "Passes that replace modules of the model by faster ones, separated by commas; auto: all that work on the "
        "device.", kind="module_pass", words=("auto", "none"), several=True)] = "auto"
    token_sampler: Annotated[str, Setting(
        "Component that draws tokens by temperature, top_k, top_p and min_p; auto: the best one that works on the device.",
        kind="token_sampler", words=("auto",))] = "auto"
    policy: Annotated[str, Setting(
        "Order in which waiting requests are admitted.", aliases=("--schedule-policy",), kind="policy")] = "lpm"
    drafter: Annotated[str, Setting(
        "Guess tokens by this drafter, and check several in one step. Replies stay the same.",
        kind="drafter", words=("none",))] = "none"
    draft_tokens: Annotated[Positive, Setting("Maximum number of guessed tokens of a request in a step.")] = 8
    draft_batch_tokens: Annotated[Positive | None, Setting(
        "Maximum number of tokens in a step with guesses. With this many requests running, nothing is guessed.",
        unset="16 on a CPU, 256 on a GPU")] = None
    logits_processors: Annotated[str, Setting(
        "Let requests ask for these changes of their logits, separated by commas, in this order. dry: repeat less. "
        "xtc: leave out the most likely tokens at random.", kind="logits_processor", words=("none",), several=True)] = "none"
    grammar: Grammar = "auto"

    mem_fraction_static: Annotated[Annotated[float, msgspec.Meta(gt=0, le=1)] | None, Setting(
        "Share of the device's memory for weights and KV cache.", unset="0.88 on a GPU, 0.3 on a CPU",
        metavar="SHARE", group="Memory")] = None
    max_total_tokens: Annotated[Positive | None, Setting(
        "Size of the KV cache in tokens.", unset="what the memory share allows")] = None
    kv_cache_dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"], Setting(
        "Type of cached keys and values; auto: the model's. fp8 is fp8_e4m3.")] = "auto"
    page_size: Annotated[Positive, Setting("Tokens per page of the KV cache.")] = 1
    disable_radix_cache: Annotated[bool, Setting("Never reuse the keys and values of a common prefix.", unset="reuse them")] = False
    max_state_snapshots: Annotated[Count | None, Setting(
        "Maximum number of states kept for prefixes of a model with convolutions or recurrences; 0: reuse no prefixes "
        "of such a model.", unset="2 for each running sequence, within a quarter of the memory left for the KV cache")] = None
    state_snapshot_dtype: Annotated[Literal["auto", "int8"], Setting("Dtype of these states; auto: that of the running "
        "sequences. With int8, a reply that starts from a prefix may differ slightly from one that does not.")] = "auto"
    eviction: Annotated[str, Setting(
        "Rule by which prefixes leave the cache. lru: least recently used. lfu: least often used. size: least often "
        "used for their size. ttl: lru, and all that was not used for a time.", kind="eviction")] = "lru"
    max_pinned_fraction: Annotated[Share, Setting(
        "Maximum share of the KV cache that pinned prefixes keep.", metavar="SHARE")] = 0.25
    cuda_graph: Annotated[Literal["on", "lazy", "off"], Setting(
        "Capture decode steps as CUDA graphs on a GPU. on: all sizes at start. lazy: each size when it is first "
        "needed.")] = "on"
    cuda_graph_max_bs: Annotated[Count | None, Setting(
        "Maximum number of sequences in a captured step; 0 captures none.", unset="512")] = None

    image_cache_mb: Annotated[Count, Setting(
        "Keep this much of encoded images, so that an image that comes again is not encoded again; 0: serve a model "
        "that reads images with text alone.", metavar="MB", group="Images")] = 256

    adapters: adapter_settings.Adapters = ()
    max_adapters: adapter_settings.MaxAdapters = None
    max_loaded_adapters: adapter_settings.MaxLoadedAdapters = None
    max_adapter_rank: adapter_settings.MaxAdapterRank = None

    max_running_requests: Annotated[Positive | None, Setting(
        "Maximum number of sequences in a step.", unset="512 on a GPU, 128 on a CPU", group="Scheduling")] = None
    max_queued_requests: Annotated[Count | None, Setting(
        "Reject new requests with 503 while this many wait; 0: no limit.",
        unset="16 times --max-running-requests, at least 256")] = None
    max_queued_tokens: Annotated[Count | None, Setting(
        "Reject a new request with 503 if its prompt would bring all waiting prompts together above this number of "
        "tokens; 0: no limit.",
        unset="8 times the KV cache, at least 1,048,576")] = None
    max_tenant_requests: Annotated[Positive | None, Setting(
        "Reject requests with 429 while this many of their tenant, a named API key or a user, wait or run.",
        unset="no limit")] = None
    chunked_prefill_size: Annotated[Annotated[int, msgspec.Meta(ge=-1)] | None, Setting(
        "Maximum number of prompt tokens in a step; -1 never splits prompts.",
        unset="8192 on a GPU, 512 on a CPU",
        check=lambda size: "" if size else "give 1 or more, or -1 to never cut prompts")] = None
    max_prefill_tokens: Annotated[Positive, Setting(
        "Maximum number of prompt tokens in a step when prompts are not split.")] = 16384
    prefill_stretch: Annotated[float, msgspec.Meta(ge=0), Setting(
        "While others decode, keep a step with a piece of a long prompt within this many times the duration of "
        "one without; 0: no limit.", metavar="TIMES")] = 1.5
    schedule_conservativeness: Annotated[float, msgspec.Meta(gt=0), Setting(
        "Factor on the estimate of tokens still to come; higher means fewer retractions.", metavar="FACTOR")] = 1.0
    overlap: Annotated[bool | None, Setting(
        "Do not schedule the next step while one runs.",
        flag="--disable-overlap-schedule", unset="schedule it on a GPU, if no drafter is chosen", turns_off=True)] = None
    stream_interval: Annotated[Positive, Setting(
        "Tokens per event of a stream. More tokens take less CPU time, and arrive less often.")] = 1
    batch_share: Annotated[Share, Setting(
        "Share of each step that batch jobs may take from live requests; 0: only what these leave.",
        metavar="SHARE")] = 0.0
    random_seed: Annotated[int, msgspec.Meta(ge=0, le=2 ** 63 - 1), Setting(
        "Seed of requests that have none.", unset="drawn at each start")] = 0

    record_requests: Annotated[str | None, Setting(
        "Write arrival times and lengths of requests to this file, for `llmfw simulate`. Texts cannot be "
        "recovered from it.", unset="nothing is recorded", metavar="FILE", group="Logging")] = None
    record_steps: Annotated[str | None, Setting(
        "Write every step to this file, with the token ids of prompts and outputs, for `llmfw debug replay` and bug "
        "reports.", unset="nothing is recorded", metavar="FILE")] = None
    trace_requests: Annotated[Count, Setting(
        "Keep the decisions about the last N requests for `llmfw trace`, and log them at level debug; 0: keep "
        "none.")] = 0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    log_file: LogFile = None
    decode_log_interval: Annotated[Positive, Setting("Decode steps from one line of the log to the next.")] = 40
    options: ComponentOptions = {}
    disabled_plugins: DisabledPlugins = ()
    place: ReplicaPlace = ReplicaPlace()

    def __post_init__(self) -> None:
        """Raise ConfigError if any field is invalid."""
        check_fields(type(self), msgspec.structs.asdict(self))


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the API process. `None` stands for the default that the help states.

    `api_key` has (name, key) pairs; a key is text or "sha256:HEX".
    """

    host: Annotated[str, Setting("Address to listen on.", group="Server")] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535), Setting(
        "TCP port to listen on; 0 picks a free one.")] = 30000
    uds: Annotated[str | None, Setting(
        "Listen on this Unix socket in place of a port. Its owner and group can connect.",
        unset="listen on --host and --port", metavar="PATH")] = None
    tls_cert: Annotated[str | None, Setting(
        "PEM file with the certificate for HTTPS, and after it those of its authorities; read again when it changes.",
        aliases=("--ssl-certfile",), unset="speak plain HTTP", metavar="FILE")] = None
    tls_key: Annotated[str | None, Setting(
        "PEM file with the private key of --tls-cert, not encrypted; read again when it changes.",
        aliases=("--ssl-keyfile",), unset="it is in the file of --tls-cert", metavar="FILE")] = None
    root_path: Annotated[str | None, Setting(
        "Answer requests below this path, too, as in /llm/v1/models, for proxies that pass it on.",
        unset="none", metavar="PATH")] = None
    trusted_proxy: Annotated[tuple[str, ...], Setting(
        "Believe this proxy, an address or a network, which client it speaks for (X-Forwarded-For and -Proto); "
        "repeatable.",
        unset="proxies on this machine alone", metavar="ADDRESS")] = ()
    served_model_name: Annotated[str, Setting(
        "Name of the model for clients.", unset="MODEL; for a folder, its last part")]
    replicas: Annotated[Annotated[int, msgspec.Meta(ge=1, le=256)], Setting(
        "Number of engines, each with a copy of the model. On a CPU they share cores and memory; on GPUs each has one.",
        aliases=("--dp-size",))] = 1
    max_replicas: Annotated[Annotated[int, msgspec.Meta(ge=1, le=256)] | None, Setting(
        "Number of engines that memory and cores are planned for, up to which /admin/replicas adds engines.",
        unset="as many as --replicas")] = None
    router: Annotated[str, Setting(
        "Component that chooses the engine of each request, with --replicas 2 or more.", kind="router")] = "prefix"
    strict_params: Annotated[bool, Setting(
        "Reject requests that have fields without effect.",
        unset="report them in the header llmfw-ignored-params")] = False
    restart: Annotated[Literal["on-failure", "never"], Setting(
        "Restart the engine when it dies or hangs. Its requests run again.")] = "on-failure"
    no_migrate: Annotated[bool, Setting(
        "End replies that have begun to stream with an error when their engine dies.",
        unset="another engine, or the restarted one, continues them")] = False
    max_restarts_per_hour: Annotated[Count, Setting(
        "End the server with exit code 70 after this many restarts of the engine in an hour.")] = 30
    watchdog_timeout: Annotated[float, msgspec.Meta(ge=0), Setting(
        "Kill an engine that takes longer than this for one step, or that gives no sign of life for 10 seconds (for this "
        "time if it is shorter). 0 turns the watchdog off.", metavar="SECONDS")] = 300.0
    drain_timeout: Annotated[float, msgspec.Meta(ge=0), Setting(
        "Time for running requests to end when the server stops. New ones get a 503 meanwhile.",
        metavar="SECONDS")] = 30.0
    weights_from: weights_settings.WeightsFrom = None
    crash_reports: Annotated[str | None, Setting(
        "Write a report to this folder when the engine dies or hangs, or an exception ends the server; none writes none. "
        "Reports hold no prompts, replies or keys.",
        unset="crashes below --storage; without --storage none are written", metavar="DIR")] = None
    crash_details: Annotated[bool, Setting(
        "Keep the messages of exceptions and the texts of log lines in crash reports, which may quote requests.",
        unset="leave them out")] = False
    observers: Annotated[str, Setting(
        "Tell these components what happens to each request, separated by commas; auto: request-metrics.",
        kind="observer", words=("auto", "none"), several=True)] = "auto"
    otlp_endpoint: Annotated[str | None, Setting(
        "Send a trace of each request to this collector of OpenTelemetry, by OTLP over HTTP: the observer otel, in addition "
        "to --observers.", unset="no traces are sent", metavar="URL")] = None
    middleware: Annotated[str, Setting(
        "Pass HTTP requests through these components, from the outside inward, separated by commas.",
        kind="middleware", words=("none",), several=True)] = "none"
    request_fields: Annotated[str, Setting(
        "Read these fields of plugins in request bodies, separated by commas, in addition to those that the "
        "chosen components need.", kind="request_field", words=("none",), several=True)] = "none"

    api_key: Annotated[tuple[tuple[str, str], ...], Setting(
        "Require this bearer token from clients; repeatable. Each name is a tenant.",
        unset="no key is required", metavar="[NAME=]KEY", group="Keys and tenants", is_secret=True)] = ()
    api_key_file: Annotated[str | None, Setting(
        "File of API keys, NAME=KEY or NAME=sha256:HEX per line, and scopes=SCOPE,SCOPE after it for less than all; "
        "read again when it changes.",
        unset="none is read", metavar="FILE")] = None
    prefix_cache_scope: Annotated[Literal["key", "server"], Setting(
        "Whose cached prefixes a request may use: those of its own named API key, or those of all clients.")] = "key"
    admin_api_key: Annotated[str | None, Setting(
        "Key that opens /admin and everything that any tenant owns.",
        unset="the only API key opens /admin, or, without keys, clients on this machine do", is_secret=True,
        metavar="KEY")] = None
    admin_api_key_file: Annotated[str | None, Setting(
        "File of admin keys, KEY or sha256:HEX per line; read again when it changes.",
        unset="none is read", metavar="FILE")] = None
    authenticators: Annotated[str, Setting(
        "Ask these components, in this order, who sends a request that has no valid API key; separated by commas.",
        kind="authenticator", words=("none",), several=True)] = "none"
    authentication_timeout: Annotated[AboveZero, Setting(
        "Reply 503 if an authenticator takes longer than this.", metavar="SECONDS")] = 5.0
    adopt_unowned: Annotated[TenantName | None, Setting(
        "Tenant that gets the files, batches and responses made without a key.",
        unset="the only tenant; if there are several, only the admin key reaches them", metavar="NAME")] = None
    allow_host: Annotated[tuple[str, ...], Setting(
        "Accept this host name from clients, in addition to this machine's; repeatable. * accepts any.",
        unset="any, unless the server listens on a loopback address and requires no key", metavar="HOST")] = ()
    allow_origin: Annotated[tuple[str, ...], Setting(
        "Accept requests from pages of this site, as in https://app.example.com; repeatable. * accepts any. Sets "
        "no CORS headers.",
        unset="any, unless the server listens on a loopback address and requires no key", metavar="ORIGIN")] = ()

    adapter_source: adapter_settings.AdapterSourceName = "none"
    adapter_source_timeout: adapter_settings.AdapterSourceTimeout = 30.0

    chat_template: Annotated[str | None, Setting(
        "Turn messages into a prompt by a registered template, or by a Jinja file.",
        unset="the model's own", kind="chat_template", group="Chat")] = None
    tool_parser: Annotated[str | None, Setting(
        "Find tool calls in the text by this parser.",
        aliases=("--tool-call-parser",), unset="the one that the model's source names, or none",
        kind="tool_parser", words=("none",))] = None
    reasoning_parser: Annotated[str | None, Setting(
        "Separate the reasoning from the answer by this parser.",
        unset="the one that the model's source names, or none", kind="reasoning_parser", words=("none",))] = None
    reasoning_field: Annotated[Literal["reasoning_content", "reasoning", "both"], Setting(
        "Field of replies that has the reasoning. In messages both names are read.")] = "reasoning_content"
    sampling_defaults: Annotated[Literal["model", "openai"], Setting(
        "Sample with these values if a request gives none: those of the model's generation_config.json, or "
        "OpenAI's (temperature 1, top_p 1).")] = "model"
    max_logit_bias: Annotated[Positive, Setting("Maximum number of entries in logit_bias.")] = 16_384
    grammar: Grammar = "auto"

    grammar_timeout: Annotated[AboveZero, Setting(
        "Reject a grammar, schema or regex with a 400 if compiling it takes more CPU time than this, or twice this time "
        "in all.", metavar="SECONDS", group="Structured output")] = 10.0
    grammar_memory_mb: Annotated[Positive, Setting(
        "Reject a grammar with a 400 if compiling it takes more memory than this, in MiB.")] = 512
    grammar_workers: Annotated[Positive, Setting(
        "Maximum number of processes that compile quick grammars. Slow ones get one fewer, but at least one.")] = 2

    allow_media_host: Annotated[tuple[str, ...], Setting(
        "Fetch images of requests from this host; repeatable. Only public addresses are dialled, at port 443 or 80; give "
        "HOST:PORT for another.",
        unset="images at URLs are refused", metavar="HOST", group="Images")] = ()
    media_from_anywhere: Annotated[bool, Setting(
        "Fetch images of requests from any host that has a public address.",
        unset="from those of --allow-media-host")] = False
    max_images: Annotated[Positive, Setting("Maximum number of images in a request, with those of its history.")] = 64
    max_image_mb: Annotated[Positive, Setting("Maximum size of one image's file, in MiB.")] = 10
    max_image_pixels: Annotated[Annotated[int, msgspec.Meta(ge=1, le=268_435_456)], Setting(
        "Maximum number of pixels of one image. A pixel takes up to 16 bytes while the image is decoded.")] = 33_554_432

    storage: Annotated[str | None, Setting(
        "Folder that keeps files, batches and responses across restarts; created if it is missing.",
        aliases=("--file-storage-pth",), unset="they end with the server", metavar="DIR", group="Storage")] = None
    file_store: Annotated[str, Setting(
        "Store for uploaded files; auto: sqlite with --storage, else memory.",
        kind="file_store", words=("auto",))] = "auto"
    batch_store: Annotated[str, Setting(
        "Store for batch jobs; auto: sqlite with --storage, else memory.",
        kind="batch_store", words=("auto",))] = "auto"
    response_store: Annotated[str, Setting(
        "Store for responses; auto: sqlite with --storage, else memory.",
        kind="response_store", words=("auto",))] = "auto"
    response_ttl_days: Annotated[AboveZero, Setting(
        "Delete a stored conversation this many days after its last response.",
        flag="--response-ttl", metavar="DAYS")] = 30.0
    response_store_mb: Annotated[Positive, Setting(
        "Room for stored responses, in MiB. The least recently continued go first.")] = 256
    min_free_disk_mb: Annotated[Count, Setting(
        "Disk space that uploaded files leave free, in MiB, but at most a twentieth of the disk.")] = 1024

    max_connections: Annotated[Positive, Setting("Maximum number of open connections.", group="HTTP limits")] = 4096
    max_connections_per_address: Annotated[Positive, Setting(
        "Maximum number of open connections from one IP address.")] = 1024
    max_header_bytes: Annotated[int, msgspec.Meta(ge=1024), Setting(
        "Maximum size of the request line and headers together, in bytes.")] = 64 * 1024
    max_headers: Annotated[int, msgspec.Meta(ge=8), Setting("Maximum number of header fields in a request.")] = 100
    max_url_bytes: Annotated[int, msgspec.Meta(ge=256), Setting(
        "Maximum length of path and query together, in bytes.")] = 8192
    header_timeout: Annotated[AboveZero, Setting(
        "Time from the first byte of a request to the end of its headers.", metavar="SECONDS")] = 10.0
    body_timeout: Annotated[AboveZero, Setting(
        "Time for a body, plus one second for each KiB that has arrived.", metavar="SECONDS")] = 30.0
    send_timeout: Annotated[AboveZero, Setting(
        "Time for a client to read what waits for it, plus one second for each KiB that it reads.",
        metavar="SECONDS")] = 60.0
    idle_timeout: Annotated[AboveZero, Setting(
        "Close a connection that has had no request for this long.",
        aliases=("--timeout-keep-alive",), metavar="SECONDS")] = 75.0
    max_body_mb: Annotated[Positive, Setting("Maximum size of one JSON body, in MiB.")] = 16
    max_buffered_mb: Annotated[Positive, Setting(
        "Maximum memory for all JSON bodies that are being received, in MiB.")] = 256
    max_json_depth: Annotated[int, msgspec.Meta(ge=8, le=500), Setting(
        "Maximum nesting depth of a JSON body.")] = 100
    max_json_values: Annotated[Positive, Setting("Maximum number of values in a JSON body.")] = 1_000_000
    max_json_nodes: Annotated[Positive, Setting(
        "Maximum number of objects, arrays and member names in a JSON body.")] = 100_000
    max_messages: Annotated[Positive, Setting(
        "Maximum number of messages in a chat, and of parts in a message.")] = 2048
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    log_file: LogFile = None
    options: ComponentOptions = {}
    disabled_plugins: DisabledPlugins = ()

    def __post_init__(self) -> None:
        """Raise ConfigError if any field is invalid."""
        check_fields(type(self), msgspec.structs.asdict(self))
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ConfigError(
                f"--max-replicas is {self.max_replicas}, and --replicas is {self.replicas}; the first cannot be less"
            )
        if self.otlp_endpoint is not None and {"@", "?"} & set(self.otlp_endpoint):
            raise ConfigError(
                "--otlp-endpoint holds a user, a password or a query, which would be in the log; give credentials by the "
                "variable OTEL_EXPORTER_OTLP_HEADERS"
            )
