"""Refused request fields: fields that would change an answer and that a route does not support.

The names come from the APIs of other servers (vLLM, SGLang, llama.cpp, Ollama, TGI, KoboldAI), and from other
routes of llmfw. If a route supports a field, the field's entry in this table does not apply to that route.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """Why a field is refused, and which of its values are accepted.

    Attributes:
        neutral: values that are accepted, because they change nothing. null is always accepted.
        use: names of equivalent fields. The error suggests the first one that the route supports.
        why: reason to give if the route supports none of these fields.
        is_of_prompt: whether the field would change the prompt, and therefore the number of its tokens.
        tunes: other fields that this field adjusts. In a body without any of them, this field has no effect
            and is ignored.
        is_of_sampler: whether a plugin may bring the field, for a logits processor of its own.
    """

    neutral: tuple[Any, ...] = ()
    use: tuple[str, ...] = ()
    why: str = ""
    is_of_prompt: bool = False
    tunes: tuple[str, ...] = ()
    is_of_sampler: bool = False

    def passes(self, value: Any) -> bool:
        """Return whether a value is accepted, because it changes nothing.

        False differs from 0, and True from 1.
        """
        return value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in self.neutral
        )

    def advice(self, fields: Collection[str]) -> str:
        """Return what the client should do instead.

        Args:
            fields: names of the fields that the body supports.
        """
        found = next((name for name in self.use if name.partition(".")[0] in fields), None)
        if found is not None:
            return f"use {found}"
        if self.why:
            return self.why
        return f"this route does not take it; /v1/chat/completions takes {self.use[0]}"


def renamed(*use: str, neutral: tuple[Any, ...] = (), why: str = "") -> Refusal:
    """Return the refusal of a field that has another name in llmfw.

    Args:
        use: names of the field in llmfw.
    """
    return Refusal(neutral, use, why)


def absent(
    *neutral: Any, why: str = "this server does not constrain or alter generation in this way"
) -> Refusal:
    """Return the refusal of a field whose feature llmfw does not have."""
    return Refusal(neutral, (), why)


def of_sampler(
    *neutral: Any, why: str = "this server does not constrain or alter generation in this way"
) -> Refusal:
    """Return the refusal of a field that is read only if a plugin brings it, for a logits processor."""
    return Refusal(neutral, (), why, is_of_sampler=True)


def tuning(
    tunes: tuple[str, ...],
    *neutral: Any,
    why: str = "this server does not constrain or alter generation in this way",
) -> Refusal:
    """Return the refusal of a field that only adjusts other fields.

    Args:
        tunes: names of the other fields.
    """
    return Refusal(neutral, (), why, tunes=tunes)


def of_prompt(why: str, *neutral: Any) -> Refusal:
    """Return the refusal of a field that would change the prompt."""
    return Refusal(neutral, (), why, is_of_prompt=True)


_MAX = ("max_tokens", "max_output_tokens", "max_new_tokens")
_BIAS = "use logit_bias, or structured output, on a route that has them"
_ADAPTERS = "adapters are models: name one as model"
_COMPLETIONS = "/v1/completions takes it"
_KWARGS = "use chat_template_kwargs on a route of chats"
_UNPACK = "send the fields in it themselves"
_PROCESSORS = "the server has the ones of --logits-processors, whose fields requests send"
_TEXT_FORMAT = {"type": "text"}
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "rep_pen")
_BEAMS = ("num_beams", "use_beam_search")
_LOGPROBS = ("logprobs", "top_logprobs", "return_logprob", "prompt_logprobs", "n_probs")

REFUSALS: Mapping[str, Refusal] = {
    # Number of tokens.
    "max_completion_tokens": renamed(*_MAX),
    "max_gen_len": renamed(*_MAX),
    "max_length": renamed(*_MAX),
    "max_new_tokens": renamed(*_MAX),
    "max_output_tokens": renamed(*_MAX),
    "max_tokens": renamed(*_MAX),
    "max_tokens_to_sample": renamed(*_MAX),
    "min_length": renamed("min_tokens", "min_new_tokens", neutral=(0,)),
    "min_new_tokens": renamed("min_tokens", neutral=(0,)),
    "min_tokens": renamed("min_tokens", "min_new_tokens", neutral=(0,)),
    "n_predict": renamed(*_MAX, neutral=(-1,)),
    "num_predict": renamed(*_MAX, neutral=(-1,)),
    # End of the output.
    "ban_eos_token": renamed("ignore_eos", neutral=(False,)),
    "eos_token_id": renamed("stop_token_ids", neutral=([],)),
    "ignore_eos": renamed("ignore_eos", neutral=(False,)),
    "include_stop_str_in_output": renamed("include_stop_str_in_output", neutral=(False,)),
    "no_stop_trim": renamed("no_stop_trim", "include_stop_str_in_output", neutral=(False,)),
    "stop": renamed("stop", "stop_sequences", neutral=([], "")),
    "stop_regex": renamed("stop_regex", "stop", "stop_sequences", neutral=([], "")),
    "stop_sequences": renamed("stop", neutral=([],)),
    "stop_token_ids": renamed("stop_token_ids", neutral=([],)),
    "stopping_strings": renamed("stop", "stop_sequences", neutral=([],)),
    # Sampling.
    "allowed_token_ids": renamed("allowed_token_ids", "logit_bias", neutral=([],), why=_BIAS),
    "bad_words": renamed("bad_words", "logit_bias", neutral=([],), why=_BIAS),
    "bad_words_ids": renamed("logit_bias", neutral=([],), why=_BIAS),
    "banned_strings": of_sampler([]),
    "banned_tokens": renamed("logit_bias", neutral=([],), why=_BIAS),
    "custom_token_bans": renamed("logit_bias", neutral=("",), why=_BIAS),
    "do_sample": renamed("temperature", neutral=(True,)),
    "dry_multiplier": of_sampler(0, why="start the server with --logits-processors dry"),
    "dynamic_temperature": of_sampler(False),
    "dynatemp_range": of_sampler(0),
    "encoder_repetition_penalty": of_sampler(1),
    "epsilon_cutoff": of_sampler(0),
    "eta_cutoff": of_sampler(0),
    "frequency_penalty": renamed("frequency_penalty", neutral=(0,)),
    "logit_bias": renamed("logit_bias", neutral=({}, [])),
    "min_p": renamed("min_p", neutral=(0,)),
    "mirostat": of_sampler(0),
    "mirostat_mode": of_sampler(0),
    "no_repeat_ngram_size": of_sampler(0),
    "penalize_nl": tuning(_PENALTIES, True, why="penalties count each token, those of line breaks too"),
    "penalty_alpha": of_sampler(0),
    "repetition_detection": absent(why="no text ends because it repeats itself"),
    "presence_penalty": renamed("presence_penalty", neutral=(0,)),
    "random_seed": renamed("seed", "sampling_seed"),
    "rep_pen": renamed("repetition_penalty", neutral=(1,)),
    "repeat_last_n": tuning(_PENALTIES, -1, why="penalties count the whole text"),
    "repeat_penalty": renamed("repeat_penalty", "repetition_penalty", neutral=(1,)),
    "repetition_penalty": renamed("repetition_penalty", neutral=(1,)),
    "repetition_penalty_range": tuning(_PENALTIES, 0, -1, why="penalties count the whole text"),
    "samplers": absent([], "", why="the order of the samplers is fixed"),
    "sampling_seed": renamed("seed"),
    "seed": renamed("seed", "sampling_seed"),
    "smoothing_factor": of_sampler(0),
    "temperature_last": absent(False, why="the order of the samplers is fixed"),
    "tfs": of_sampler(1),
    "tfs_z": of_sampler(1),
    "top_a": of_sampler(0),
    "top_n_sigma": of_sampler(-1, 0),
    "typical": of_sampler(1),
    "typical_p": of_sampler(1),
    "xtc_probability": of_sampler(0, why="start the server with --logits-processors xtc"),
    # Number of answers, and beam search.
    "best_of": absent(1, why=_COMPLETIONS),
    "diversity_penalty": tuning(_BEAMS, 0),
    "early_stopping": tuning(_BEAMS, False),
    "length_penalty": tuning(_BEAMS, 1),
    "n": absent(1, why="a request has one answer on this route"),
    "num_beam_groups": tuning(_BEAMS, 1),
    "num_beams": absent(1),
    "use_beam_search": absent(False),
    # The prefix cache.
    "extra_key": renamed("cache_salt", neutral=("", []), why="this route does not keep prefixes apart"),
    # Logits processors and adapters.
    "custom_logit_processor": absent("", why=_PROCESSORS),
    "logits_processors": absent([], {}, why=_PROCESSORS),
    "lora_path": absent("", [], why=_ADAPTERS),
    "lora_request": absent({}, why=_ADAPTERS),
    # Structured output.
    "choice": renamed("choice"),
    "ebnf": renamed("ebnf"),
    "format": renamed("response_format", "json_schema", neutral=("",)),
    "grammar": renamed("grammar", "ebnf", neutral=("",)),
    "guided_choice": renamed("guided_choice", "regex"),
    "guided_decoding": renamed("structured_outputs", "json_schema", neutral=({},)),
    "guided_grammar": renamed("guided_grammar", "ebnf"),
    "guided_json": renamed("guided_json", "json_schema"),
    "guided_json_object": renamed("response_format", "json_schema", neutral=(False,)),
    "guided_regex": renamed("guided_regex", "regex"),
    "guided_whitespace_pattern": absent("", why="the grammar backend chooses the white space"),
    "json_schema": renamed("json_schema"),
    "regex": renamed("regex"),
    "response_format": renamed("response_format", "json_schema", neutral=(_TEXT_FORMAT,)),
    "structural_tag": renamed("structural_tag"),
    "structured_outputs": renamed("structured_outputs", "json_schema"),
    # Thinking.
    "enable_thinking": Refusal(
        (), ("enable_thinking", "chat_template_kwargs.enable_thinking"), _KWARGS, is_of_prompt=True
    ),
    "include_reasoning": renamed(
        "include_reasoning", neutral=(True,), why="leave the thinking of the reply unread"
    ),
    "reasoning_budget": renamed("thinking_budget", neutral=(-1,)),
    "reasoning_effort": renamed("reasoning_effort"),
    "reasoning_format": renamed("separate_reasoning", neutral=("auto",)),
    "separate_reasoning": renamed("separate_reasoning", neutral=(True,)),
    "think": renamed("reasoning_effort"),
    "thinking": renamed("reasoning_effort", "thinking_budget"),
    "thinking_budget": renamed("thinking_budget"),
    "thinking_token_budget": renamed("thinking_token_budget", "thinking_budget"),
    # The prompt.
    "add_generation_prompt": of_prompt("/v1/chat/completions takes it", True),
    "auto_truncate": of_prompt("a prompt that is too long is refused, never cut", False),
    "chat_template": of_prompt("the template is chosen when the server starts"),
    "chat_template_kwargs": of_prompt("/v1/chat/completions takes it", {}),
    "continue_final_message": of_prompt("/v1/chat/completions takes it", False),
    "documents": of_prompt("write them into the prompt or the messages", []),
    "images": of_prompt("images are image_url parts of a message in /v1/chat/completions", []),
    "num_ctx": of_prompt("the length of the context is the server's: --context-length"),
    "parse_tool_calls": absent(True, why="send no tools, or tool_choice none, to get the text as it is"),
    "raw": of_prompt("/v1/completions takes prompts as they are", False),
    "session_params": of_prompt("this server keeps no sessions; send the whole prompt", {}),
    "suffix": of_prompt(_COMPLETIONS, ""),
    "system": of_prompt("send a message of the role system, or begin the prompt with it", ""),
    "template": of_prompt("the template is chosen when the server starts", ""),
    "tools": of_prompt("/v1/chat/completions takes them", []),
    "truncate": of_prompt("a prompt that is too long is refused, never cut"),
    "truncate_prompt_tokens": of_prompt("/v1/chat/completions and /v1/completions take it"),
    # Content of the reply.
    "echo": renamed("echo", neutral=(False,)),
    "logprob_token_ids": renamed("logprob_token_ids", "token_ids_logprob", neutral=([],)),
    "logprobs": renamed("logprobs", "top_logprobs", "return_logprob", neutral=(False,)),
    "n_probs": renamed("top_logprobs", "logprobs", neutral=(0,)),
    "prompt_logprobs": renamed("prompt_logprobs", neutral=(False,)),
    "return_hidden_states": absent(False, why="this server returns no hidden states"),
    "return_logprob": renamed("logprobs", "top_logprobs", neutral=(False,)),
    "return_token_ids": renamed("return_token_ids", neutral=(False,)),
    "return_tokens_as_token_ids": tuning(
        _LOGPROBS, False, why="log probabilities name tokens by their text; /v1/chat/completions takes it"
    ),
    "skip_special_tokens": renamed("skip_special_tokens", neutral=(True,)),
    "spaces_between_special_tokens": tuning(
        ("skip_special_tokens",), True, why="special tokens stand as the tokenizer decodes them"
    ),
    "token_ids_logprob": renamed("token_ids_logprob", "logprob_token_ids", neutral=([],)),
    "top_logprobs": renamed("logprobs", "top_logprobs_num", neutral=(0,)),
    # Objects of fields that a client library should have unpacked, or that another server unpacks.
    "extra_body": absent({}, why=_UNPACK),
    "nvext": absent({}, why=_UNPACK),
    "options": absent({}, why=_UNPACK),
    "parameters": absent({}, why=_UNPACK),
    "sampling_params": absent({}, why=_UNPACK),
    "vllm_xargs": absent({}, why=_UNPACK),
}
"""Field → its refusal by routes that generate text.

Fields that only tune another of these (`mirostat_tau`, `dry_base`) are missing. Without the other field, they
change nothing and are reported as ignored.
"""

PROMPT_REFUSALS: Mapping[str, Refusal] = {name: each for name, each in REFUSALS.items() if each.is_of_prompt}
"""Field → its refusal by routes that only count a prompt's tokens."""
