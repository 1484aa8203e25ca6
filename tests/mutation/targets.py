"""Which tests hold which modules of the bundled components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]


class Target(msgspec.Struct, frozen=True):
    """A bundled package.

    Attributes:
        kit: ids of the tests that come from conformance classes; empty: no class suits the package.
        own: files or folders with the package's other tests.
        modules: names of the modules that its components consist of; empty: all of them.
        only: expression of pytest's `-k`, for a class of tests that also holds other packages; empty: all tests.
        kits: ids of tests for single modules, by their names, in place of `kit`.
    """

    kit: Sequence[str]
    own: Sequence[str]
    modules: Sequence[str] = ()
    only: str = ""
    kits: Mapping[str, Sequence[str]] = {}

    def kit_of(self, module: str) -> Sequence[str]:
        """Return the ids of the tests that hold a module, by its name."""
        return self.kits.get(module, self.kit)

    def files(self, package: str) -> list[Path]:
        """Return the source files of the modules."""
        folder = ROOT / "plugins" / package
        names = self.modules or sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        return [folder / f"{name}.py" for name in names]


_FILES = ["test_file_stores.py::TestSqliteFiles"]
_BATCHES = ["test_batch_stores.py::TestSqliteBatches"]
_RESPONSES = ["test_promises.py::TestBundledResponseStores"]

TARGETS: Mapping[str, Target] = {
    "policies": Target(
        ["policies/test_kit.py", "policies/test_edf.py::TestEDF", "policies/test_edf.py::TestDeadline"],
        ["policies"],
    ),
    "routers": Target(
        [f"routers/test_routers.py::Test{name}" for name in ("Load", "Prefix", "RoundRobin", "Session")],
        ["routers"],
    ),
    "eviction": Target(
        ["eviction/test_eviction.py::TestBundled", "eviction/test_eviction.py::TestSinceCreation"],
        ["eviction"],
    ),
    "drafters": Target(["drafters/test_prompt_lookup.py::TestPromptLookup"], ["drafters"]),
    "parsers_families": Target(["parsers_families/test_kit.py"], ["parsers_families"]),
    "request_log": Target(["request_log/test_request_log.py::TestRequestLog"], ["request_log"]),
    "request_metrics": Target(
        ["request_metrics/test_request_metrics.py::TestRequestMetrics"], ["request_metrics"]
    ),
    "traces_otel": Target(["traces_otel/test_otel_traces.py::TestOtelTraces"], ["traces_otel"]),
    "http_middleware": Target(
        [
            "http_middleware/test_http_middleware.py::TestCors",
            "http_middleware/test_http_middleware.py::TestGzip",
        ],
        ["http_middleware"],
    ),
    "store_memory": Target(
        [
            "test_file_stores.py::TestMemoryFiles",
            "test_batch_stores.py::TestMemoryBatches",
            "test_promises.py::TestBundledResponseStores",
        ],
        ["test_file_stores.py", "test_batch_stores.py", "test_promises.py"],
    ),
    "store_sqlite": Target(
        [
            "test_file_stores.py::TestSqliteFiles",
            "test_batch_stores.py::TestSqliteBatches",
            "test_promises.py::TestBundledResponseStores",
        ],
        [
            "test_file_stores.py",
            "test_batch_stores.py",
            "test_promises.py",
            "test_sqlite_stores.py",
            "test_response_stores.py",
        ],
        kits={
            "files": _FILES,
            "contents": _FILES,
            "removals": _FILES,
            "batches": _BATCHES,
            "sweeper": _BATCHES,
            "responses": _RESPONSES,
        },
    ),
    "attention_torch": Target(["test_attention_torch.py::TestTorchAttention"], ["test_attention_torch.py"]),
    "sampling_torch": Target(["test_sampling_torch.py::TestTorchSampler"], ["test_sampling_torch.py"]),
    "grammar_llguidance": Target(
        ["test_promises.py::TestBundledGrammarBackends"], ["test_promises.py", "grammar_llguidance"]
    ),
    "chat_jinja": Target(
        ["test_promises.py::TestBundledChatTemplates"],
        ["test_promises.py", "test_chat_jinja.py"],
        only="jinja",
    ),
    "samplers": Target(
        [
            "samplers/test_dry.py::TestDRY",
            "samplers/test_xtc.py::TestXTC",
            "samplers/test_fields.py::TestFields",
            "samplers/test_fields.py::TestBreakers",
        ],
        ["samplers"],
    ),
    "weights_transformers": Target(
        [
            "test_weights_transformers.py::TestSafetensors",
            "test_weights_transformers.py::TestBin",
        ],
        ["test_weights_transformers.py"],
    ),
    "weights_gguf": Target([], ["weights_gguf"]),
    "quantization_int": Target(["quantization_int/test_schemes.py::TestBundled"], ["quantization_int"]),
    "quantized_formats": Target(
        [
            "quantized_formats/test_promises.py::TestBundled",
            "quantized_formats/test_promises.py::TestVariants",
        ],
        ["quantized_formats"],
        [
            "awq",
            "bits",
            "blocks",
            "compressed_scheme",
            "compressed_tensors",
            "fp8",
            "gptq",
            "groups",
            "rounded_inputs",
            "settings",
            "stored",
        ],
    ),
    "adapters_families": Target(
        ["adapters_families/test_promises.py::TestBundledAdapters"],
        ["adapters_families"],
        ["attention_method", "falcon", "gpt_neo", "llama4", "passed_on"],
    ),
}
