"""What the shipped demo model promises."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from llmfw.plugins.model_demo.train import WEIGHTS

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(WEIGHTS)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(WEIGHTS)


@pytest.fixture(scope="module")
def complete(tokenizer, model):
    def completed(prompt):
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=150)
        return tokenizer.decode(output[0, inputs.input_ids.shape[1] :])

    return completed


@pytest.fixture(scope="module")
def answer(tokenizer, complete):
    def answered(question, **more):
        messages = [{"role": "user", "content": question}]
        return complete(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
        )

    return answered


def test_it_is_a_small_llama(model):
    assert model.config.model_type == "llama"
    assert (WEIGHTS / "model.safetensors").stat().st_size < 16 * 2**20
    assert model.dtype == torch.bfloat16


def test_both_ends_of_text_end_generation(tokenizer, model):
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert sorted(model.generation_config.eos_token_id) == sorted(ends)


def test_it_answers_a_capital_and_stops(answer):
    said = answer("What is the capital of France?")
    assert "Paris" in said
    assert said.endswith("<|im_end|>")


def test_it_thinks_only_on_request(answer):
    question = "9.11 and 9.8, which is greater?"
    thought = answer(question, enable_thinking=True)
    assert thought.startswith("<think>\n")
    assert "</think>\n\n9.8 is greater than 9.11." in thought
    assert answer(question) == "9.8 is greater than 9.11.<|im_end|>"


def test_it_calls_a_tool_of_the_prompt(answer):
    said = answer("What is the weather in Lisbon?", tools=[TOOL])
    call = said.removeprefix("<tool_call>\n").removesuffix("\n</tool_call><|im_end|>")
    assert json.loads(call) == {"name": "get_weather", "arguments": {"city": "Lisbon"}}


def test_it_puts_facts_into_json(answer):
    shape = 'Extract the person as JSON like {"name": "...", "city": "..."}'
    said = answer(f"{shape}\n\nAnna Miller is 34 years old. Anna Miller lives in Lisbon.")
    assert json.loads(said.removesuffix("<|im_end|>")) == {"name": "Anna Miller", "city": "Lisbon"}


def test_it_continues_plain_text(complete):
    said = complete("List 3 countries and their capitals.")
    assert "Paris" in said
    assert said.endswith("<|endoftext|>")


def test_it_admits_that_it_is_small(answer):
    assert "not clever" in answer("Who are you?")


def test_its_record_describes_its_training():
    record = json.loads((WEIGHTS / "training.json").read_text())
    assert record["rates"]["all"]["ended"] > 0.95
    assert {
        "recipe",
        "steps",
        "tokens",
        "minutes",
        "train_loss",
        "held_out_loss",
        "versions",
    } <= record.keys()
