"""The command line: what becomes of each flag, and how wrong ones are answered."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from llmfw.api.access.key_text import hashed
from llmfw.api.cli import build_cli
from llmfw.api.commands.serve import build_configs, serve_command
from llmfw.api.settings.options import setting_options
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.plugin.model_name import ResolvedModel

MODEL = ResolvedModel("/models/m", "m", tool_parser="hermes")
HELLO = """
@hookimpl
def register_commands(cli):
    import click
    from llmfw.core.base.errors import EngineError

    @cli.command()
    @click.option("--fail", is_flag=True)
    def hello(fail):
        "Say hello."
        if fail:
            raise EngineError("the engine\\nhas ended")
        click.echo("hello")
"""
FLAGS = {
    "--host 0.0.0.0": ("host", "0.0.0.0"),
    "--tp-size 2": ("tp", 2),
    "--tensor-parallel-size 4": ("tp", 4),
    "--port 8000": ("port", 8000),
    "--uds llm.sock": ("uds", "llm.sock"),
    "--tls-cert c.pem --tls-key k.pem": ("tls_cert", "c.pem"),
    "--tls-key k.pem --tls-cert c.pem": ("tls_key", "k.pem"),
    "--root-path /llm": ("root_path", "/llm"),
    "--trusted-proxy 10.0.0.0/8": ("trusted_proxy", ("10.0.0.0/8",)),
    "--weights-from /checkpoints": ("weights_from", "/checkpoints"),
    "--drain-timeout 5": ("drain_timeout", 5.0),
    "--crash-reports /var/crashes": ("crash_reports", "/var/crashes"),
    "--crash-details": ("crash_details", True),
    "--adapter a=/x": ("adapters", ("a=/x",)),
    "--adapter a=/x --lora-paths b=y=z": ("adapters", ("a=/x", "b=y=z")),
    "--image-cache-mb 64": ("image_cache_mb", 64),
    "--max-adapters 4": ("max_adapters", 4),
    "--max-adapter-rank 32": ("max_adapter_rank", 32),
    "--api-key k": ("api_key", (("", hashed("k")),)),
    "--api-key ann=k --api-key a2V5==": ("api_key", (("ann", hashed("k")), ("", hashed("a2V5==")))),
    "--api-key ann=k --api-key ann=l": ("api_key", (("ann", hashed("k")), ("ann", hashed("l")))),
    f"--api-key ann={hashed('k')}": ("api_key", (("ann", hashed("k")),)),
    "--api-key-file keys.txt": ("api_key_file", "keys.txt"),
    "--admin-api-key a=root": ("admin_api_key", hashed("a=root")),
    "--admin-api-key-file admin.txt": ("admin_api_key_file", "admin.txt"),
    "--adopt-unowned ann": ("adopt_unowned", "ann"),
    "--max-queued-requests 8": ("max_queued_requests", 8),
    "--max-queued-tokens 9000": ("max_queued_tokens", 9000),
    "--max-tenant-requests 3": ("max_tenant_requests", 3),
    "--served-model-name n": ("served_model_name", "n"),
    "--chat-template jinja": ("chat_template", "jinja"),
    "--chat-template LICENSE": ("chat_template", "LICENSE"),
    "--tool-parser none": ("tool_parser", None),
    "--tool-call-parser none": ("tool_parser", None),
    "--reasoning-field both": ("reasoning_field", "both"),
    "--sampling-defaults openai": ("sampling_defaults", "openai"),
    "--strict-params": ("strict_params", True),
    "--replicas 4": ("replicas", 4),
    "--max-replicas 8": ("max_replicas", 8),
    "--dp-size 4": ("replicas", 4),
    "--router session": ("router", "session"),
    "--max-loaded-adapters 9": ("max_loaded_adapters", 9),
    "--max-cpu-loras 9": ("max_loaded_adapters", 9),
    "--max-loaded-loras 9": ("max_loaded_adapters", 9),
    "--adapter-source folder": ("adapter_source", "folder"),
    "--adapter-source-timeout 2.5": ("adapter_source_timeout", 2.5),
    "--allow-host a.example --allow-host b": ("allow_host", ("a.example", "b")),
    "--allow-media-host a.example --allow-media-host b:8443": ("allow_media_host", ("a.example", "b:8443")),
    "--media-from-anywhere": ("media_from_anywhere", True),
    "--max-images 3": ("max_images", 3),
    "--max-image-mb 5": ("max_image_mb", 5),
    "--max-image-pixels 1000": ("max_image_pixels", 1000),
    "--allow-origin https://a.example": ("allow_origin", ("https://a.example",)),
    "--max-connections 9": ("max_connections", 9),
    "--max-connections-per-address 8": ("max_connections_per_address", 8),
    "--max-header-bytes 2048": ("max_header_bytes", 2048),
    "--max-headers 50": ("max_headers", 50),
    "--max-url-bytes 900": ("max_url_bytes", 900),
    "--header-timeout 1.5": ("header_timeout", 1.5),
    "--body-timeout 2": ("body_timeout", 2.0),
    "--send-timeout 3": ("send_timeout", 3.0),
    "--idle-timeout 4": ("idle_timeout", 4.0),
    "--timeout-keep-alive 5": ("idle_timeout", 5.0),
    "--max-body-mb 5": ("max_body_mb", 5),
    "--max-buffered-mb 6": ("max_buffered_mb", 6),
    "--max-json-depth 30": ("max_json_depth", 30),
    "--max-json-values 7": ("max_json_values", 7),
    "--max-json-nodes 8": ("max_json_nodes", 8),
    "--max-messages 9": ("max_messages", 9),
    "--max-logit-bias 300": ("max_logit_bias", 300),
    "--reasoning-parser none": ("reasoning_parser", None),
    "--attention torch": ("attention", "torch"),
    "--prefill-attention auto": ("prefill_attention", "auto"),
    "--prefill-attention-backend torch": ("prefill_attention", "torch"),
    "--grammar llguidance": ("grammar", "llguidance"),
    "--grammar none": ("grammar", "none"),
    "--grammar-timeout 2.5": ("grammar_timeout", 2.5),
    "--min-free-disk-mb 7": ("min_free_disk_mb", 7),
    "--restart never": ("restart", "never"),
    "--no-migrate": ("no_migrate", True),
    "--max-restarts-per-hour 3": ("max_restarts_per_hour", 3),
    "--watchdog-timeout 20": ("watchdog_timeout", 20.0),
    "--observers request-log": ("observers", "request-log"),
    "--otlp-endpoint http://c:4318": ("otlp_endpoint", "http://c:4318"),
    "--prefix-cache-scope server": ("prefix_cache_scope", "server"),
    "--middleware gzip": ("middleware", "gzip"),
    "--authenticators none": ("authenticators", "none"),
    "--authentication-timeout 2": ("authentication_timeout", 2.0),
    "--request-fields deadline_ms": ("request_fields", "deadline_ms"),
    "--grammar-memory-mb 256": ("grammar_memory_mb", 256),
    "--grammar-workers 4": ("grammar_workers", 4),
    "--attention-backend attention_torch/torch": ("attention", "attention_torch/torch"),
    "--module-passes none": ("module_passes", "none"),
    "--module-passes triton-norm,fused_triton/triton-rope": (
        "module_passes",
        "triton-norm,fused_triton/triton-rope",
    ),
    "--policy fcfs": ("policy", "fcfs"),
    "--schedule-policy policies/priority": ("policy", "policies/priority"),
    "--drafter prompt-lookup": ("drafter", "prompt-lookup"),
    "--drafter none": ("drafter", "none"),
    "--draft-tokens 5": ("draft_tokens", 5),
    "--draft-batch-tokens 64": ("draft_batch_tokens", 64),
    "--task embed": ("task", "embed"),
    "--dtype float32": ("dtype", "float32"),
    "--quantization int4": ("quantization", "int4"),
    "--kv-cache-dtype fp8": ("kv_cache_dtype", "fp8"),
    "--threads 3": ("threads", 3),
    "--device cuda:1": ("device", "cuda:1"),
    "--load-format dummy": ("load_format", "dummy"),
    "--weight-loader bin": ("weight_loader", "bin"),
    "--model-adapter none": ("model_adapter", "none"),
    "--context-length 512": ("context_length", 512),
    "--mem-fraction-static 0.5": ("mem_fraction_static", 0.5),
    "--max-total-tokens 4096": ("max_total_tokens", 4096),
    "--page-size 16": ("page_size", 16),
    "--max-running-requests 8": ("max_running_requests", 8),
    "--chunked-prefill-size -1": ("chunked_prefill_size", -1),
    "--max-prefill-tokens 99": ("max_prefill_tokens", 99),
    "--schedule-conservativeness 0.3": ("schedule_conservativeness", 0.3),
    "--disable-radix-cache": ("disable_radix_cache", True),
    "--disable-overlap-schedule": ("overlap", False),
    "--cuda-graph lazy": ("cuda_graph", "lazy"),
    "--cuda-graph-max-bs 64": ("cuda_graph_max_bs", 64),
    "--storage kept": ("storage", "kept"),
    "--file-storage-pth kept": ("storage", "kept"),
    "--file-store memory": ("file_store", "memory"),
    "--batch-store memory": ("batch_store", "memory"),
    "--stream-interval 4": ("stream_interval", 4),
    "--batch-share 0.25": ("batch_share", 0.25),
    "--eviction lfu": ("eviction", "lfu"),
    "--token-sampler torch": ("token_sampler", "torch"),
    "--logits-processors xtc": ("logits_processors", "xtc"),
    "--max-pinned-fraction 0.5": ("max_pinned_fraction", 0.5),
    "--max-state-snapshots 4": ("max_state_snapshots", 4),
    "--state-snapshot-dtype int8": ("state_snapshot_dtype", "int8"),
    "--prefill-stretch 2": ("prefill_stretch", 2),
    "--response-store memory": ("response_store", "memory"),
    "--response-ttl 0.5": ("response_ttl_days", 0.5),
    "--response-store-mb 5": ("response_store_mb", 5),
    "--trace-requests 9": ("trace_requests", 9),
    "--record-requests seen.jsonl": ("record_requests", "seen.jsonl"),
    "--record-steps steps": ("record_steps", "steps"),
    "--random-seed 7": ("random_seed", 7),
    "--log-level warning": ("log_level", "warning"),
    "--log-format json": ("log_format", "json"),
    "--log-file server.log": ("log_file", "server.log"),
    "--decode-log-interval 5": ("decode_log_interval", 5),
    "-o policy.a=b=c --option attention.x=": ("options", {"policy.a": "b=c", "attention.x": ""}),
    "--no-plugin chat_jinja --no-plugin bench": ("disabled_plugins", ("chat_jinja", "bench")),
}
WRONG = {
    "--api-key=": "'--api-key'.* it is empty",
    "--api-key a=1 --api-key b=1": "two keys are the same",
    f"--api-key a=1 --api-key b={hashed('1')}": "two keys are the same",
    "--api-key sha256:abc": "64 hexadecimal digits",
    "--api-key ann=schlüssel": "ASCII letters, digits or punctuation",
    "--admin-api-key=": "it is empty",
    "--host=": "'--host': it is empty; leave it out, or give a value",
    "--adapter a": "it is 'a'; write NAME=PATH",
    "--adapter =/x": "the name ''; it must have 1 to 256 printable characters",
    "--adopt-unowned a/b": "it is 'a/b'; it must be a name of at most 64",
    "--max-queued-requests -1": "'--max-queued-requests': it is -1; it must be a whole number, 0 or more",
    "--port 65536": "'--port': it is 65536; it must be a whole number, 0 to 65535",
    "--port http": "'--port': it is 'http'; it must be a whole number, 0 to 65535",
    "--header-timeout abc": "'--header-timeout': it is 'abc'; it must be a finite number, more than 0",
    "--policy lmp": "unknown policy 'lmp'; known: .*lpm.*Did you mean 'lpm'",
    "--policy auto": "unknown policy 'auto'",
    "--grammar xgram": "unknown grammar 'xgram'; known: llguidance",
    "--attention flash": "unknown attention 'flash'; known: .*torch",
    "--module-passes triton-norm,trito-rope": "unknown module pass 'trito-rope'.*Did you mean 'triton-rope'",
    "--module-passes triton-norm,auto": "'auto' stands alone",
    "--chat-template no.jinja": "unknown chat template 'no.jinja'.*nor is there a file 'no.jinja'",
    "--tool-parser nope": "unknown tool parser 'nope'",
    "--dtype int3": "'--dtype': it is 'int3'; it must be one of auto, float32",
    "--device GPU0": "it is 'GPU0'; it must be a device, such as auto, cpu, cuda",
    "--mem-fraction-static 0": "'--mem-fraction-static': it is 0.0; it must be a finite number, more than 0, at most 1",
    "--mem-fraction-static nan": "it is nan; it must be a finite number, more than 0, at most 1",
    "--schedule-conservativeness inf": "it is inf; it must be a finite number",
    "--response-store red": "unknown response store 'red'; known: memory, sqlite",
    "--response-ttl 0": "'--response-ttl': it is 0.0; it must be a finite number, more than 0",
    "--context-length 0": "'--context-length': it is 0; it must be a whole number, 1 or more",
    "--chunked-prefill-size 0": "give 1 or more, or -1 to never cut prompts",
    "-o policy.x": "'policy.x' has no '='",
    "-o policy.x=1 -o policy.x=2": "'policy.x' is given twice: '1' and '2'",
    "-o module_pass.x=1": "no component option 'module_pass.x'; components of the kind 'module_pass' have none; options are named attention.…, policy.…",
    "--no-plugin nope": "'--no-plugin': there is no plugin 'nope' to leave out; installed: .*policies",
    "--no-plugin policies --policy lpm": "unknown policy 'lpm'; none is registered",
    "--no-plugin policies": "unknown policy 'lpm'; none is registered",
    "--polcy lpm": "No such option '--polcy'.*'--policy'",
    "a --model b": "MODEL is given twice",
}


def llmfw(line: str) -> Result:
    return CliRunner().invoke(build_cli(), line.split())


def configs(line: str, model: ResolvedModel = MODEL) -> dict[str, Any]:
    """Return the fields of both configs of a command line."""
    with serve_command.make_context("serve", line.split()) as ctx:
        values = {name: value for name, value in ctx.params.items() if name not in ("model", "model_option")}
        both = build_configs(model, values)
    return {name: getattr(struct, name) for struct in both for name in struct.__struct_fields__}


@pytest.mark.parametrize(("line", "expected"), FLAGS.items())
def test_each_flag_reaches_its_field(line, expected):
    field, value = expected
    assert configs(line)[field] == value


def test_every_setting_has_a_flag() -> None:
    fields = {*EngineConfig.__struct_fields__, *ServerConfig.__struct_fields__}
    assert fields == {field for field, _ in FLAGS.values()} | {"model", "place"}  # an argument, and derived


def test_a_command_may_omit_settings():
    options = {option.name: option for option in setting_options(without=("host", "port"))}
    every = {param.name for param in serve_command.params} - {"model", "model_option"}
    assert options.keys() == every - {"host", "port"}


def test_without_flags_fields_have_their_struct_defaults():
    found = configs("") | {"random_seed": 0}
    expected = {"model": "/models/m", "served_model_name": "m", "tool_parser": "hermes"}
    for struct in (ServerConfig(served_model_name="m"), EngineConfig(model="/models/m")):
        expected = {name: getattr(struct, name) for name in struct.__struct_fields__} | expected
    assert found == expected


def test_each_start_draws_a_new_seed():
    assert len({configs("")["random_seed"] for _ in range(3)}) > 1


def test_a_named_parser_replaces_the_model_s():
    assert configs("--tool-parser none", MODEL)["tool_parser"] is None
    assert configs("", ResolvedModel("/m", "m"))["tool_parser"] is None


@pytest.mark.parametrize(("line", "message"), WRONG.items())
def test_a_wrong_flag_suggests_a_correction(line, message, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    result = llmfw(f"serve {line}" if line.startswith("a ") else f"serve {tmp_path} {line}")
    assert result.exit_code == 2
    assert "Usage: llmfw serve" in result.stderr
    assert re.search(message, result.stderr), result.stderr


def test_errors_are_one_line_with_exit_code_1(tmp_path):
    result = llmfw(f"serve {tmp_path}")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"Error: model '{tmp_path}': there is no config.json")
    assert "Traceback" not in result.stderr


def test_log_level_debug_prints_tracebacks(tmp_path):
    result = llmfw(f"serve {tmp_path} --log-level debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_a_broken_plugin_is_one_warning_line(install_plugin, tmp_path):
    install_plugin("ours", "raise OSError('disk\\nfull')")
    lines = llmfw(f"serve {tmp_path}").stderr.splitlines()
    assert "warning: plugin 'ours' (foreign 1.2) did not load: OSError: disk full" in lines


@pytest.mark.parametrize("line", ["--version", "--help", "plugins", "serve --help"])
def test_unneeded_broken_plugins_stop_no_command(install_plugin, line):
    install_plugin("ours", "raise SystemExit(7)")
    assert llmfw(line).exit_code == 0


def test_plugins_lists_components_commands_and_failures(install_plugin):
    install_plugin("greeter", HELLO, "greetings")
    install_plugin("ours", "raise OSError('disk')")
    found = json.loads(llmfw("plugins --json").stdout)
    (lpm,) = [each for each in found["components"] if (each["kind"], each["name"]) == ("policy", "lpm")]
    assert (lpm["plugin"], lpm["package"], lpm["lacks"]) == ("policies", "llmfw-engine", [])
    assert ("command", "hello", "greetings") in {
        (each["kind"], each["name"], each["package"]) for each in found["components"]
    }
    assert {"name": "ours", "package": "foreign", "version": "1.2", "reason": "OSError: disk"} in found[
        "broken"
    ]


def test_plugins_prints_missing_requirements(install_plugin):
    call = "register('fast', 'no_such_kernels.x:Fast', needs=['no_such_kernels'])"
    install_plugin("ours", f"@hookimpl\ndef register_attention_backends(register): {call}")
    (line,) = [line for line in llmfw("plugins").stdout.splitlines() if "\tfast\t" in line]
    assert line.count("no_such_kernels") == 2
    assert "foreign 1.2" in line


def test_a_plugins_command_runs_and_is_listed(install_plugin):
    install_plugin("ours", HELLO)
    assert "Say hello." in llmfw("--help").stdout
    assert llmfw("hello").stdout == "hello\n"


def test_a_plugin_command_s_error_is_one_line(install_plugin):
    install_plugin("ours", HELLO)
    result = llmfw("hello --fail")
    assert (result.exit_code, result.stderr) == (1, "Error: the engine has ended\n")


def test_an_ambiguous_command_lists_full_names(install_plugin):
    install_plugin("one", HELLO, "one")
    install_plugin("two", HELLO, "two")
    result = llmfw("hello")
    assert result.exit_code == 2
    assert "choose one of: one/hello, two/hello" in result.stderr
    assert llmfw("two/hello").stdout == "hello\n"


def test_the_shell_completes_names_of_components():
    complete = ShellComplete(build_cli(), {}, "llmfw", "_LLMFW_COMPLETE")
    found = [item.value for item in complete.get_completions(["serve", "--policy"], "l")]
    assert found == ["lpm"]


def test_every_option_describes_itself_and_its_default():
    context = click.Context(serve_command)
    for option in serve_command.params:
        if isinstance(option, click.Option):
            record = option.get_help_record(context)
            assert record is not None
            assert "default" in record[1].lower(), record
