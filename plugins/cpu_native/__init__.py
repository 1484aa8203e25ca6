"""Native code for CPUs: decoder layers and attention in C++, built by the system's compiler at first use."""

from llmfw.core import Register, hookimpl

_PACKAGE = "llmfw.plugins.cpu_native"
_PREPARE = f"{_PACKAGE}.prepare:prepare"


@hookimpl
def register_module_passes(register: Register) -> None:
    """Register the module pass `cpu-native`."""
    register(
        "cpu-native",
        f"{_PACKAGE}.layers:NativePass",
        summary="the layers of Llama, Mistral, Qwen2 and Qwen3 in C++; CPUs, needs a C++ compiler",
        needs=("torch",),
        devices=("cpu",),
        rank=50,
        prepare=_PREPARE,
    )


@hookimpl
def register_attention_backends(register: Register) -> None:
    """Register the attention backend `cpu`."""
    register(
        "cpu",
        f"{_PACKAGE}.attention:CpuAttention",
        summary="paged attention in C++, nothing gathered; CPUs, needs a C++ compiler",
        needs=("torch",),
        devices=("cpu",),
        rank=5,
        prepare=_PREPARE,
    )
