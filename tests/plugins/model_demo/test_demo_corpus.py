"""What the demo model's corpus promises."""

import json
from itertools import islice

import pytest

from llmfw.plugins.model_demo.corpus import SUBJECTS, Draw, names, numbers, samples, single, tools
from llmfw.plugins.model_demo.corpus.draw import is_held_out
from llmfw.plugins.model_demo.judge import judge
from llmfw.plugins.model_demo.tokenization import TURN_END


def test_the_same_seed_gives_the_same_samples():
    assert list(islice(samples(Draw(7)), 300)) == list(islice(samples(Draw(7)), 300))


def test_other_seeds_give_other_samples():
    assert list(islice(samples(Draw(7)), 30)) != list(islice(samples(Draw(8)), 30))


@pytest.mark.parametrize("make", [names.word, names.first_name, names.last_name, names.code, names.day])
def test_invented_words_are_in_one_split_only(make):
    seen, unseen = Draw(1), Draw(1, held_out=True)
    assert not any(is_held_out(make(seen)) for _ in range(200))
    assert all(is_held_out(make(unseen)) for _ in range(200))


def test_sums_and_tools_are_in_one_split():
    def shown(held_out):
        draw = Draw(3, held_out=held_out)
        sums = {numbers.arithmetic(draw).messages[-1]["content"] for _ in range(400)}
        calls = (tools.call(draw).messages[-1]["tool_calls"][0]["function"]["name"] for _ in range(400))
        return sums, set(calls)

    (seen_sums, seen_tools), (unseen_sums, unseen_tools) = shown(False), shown(True)
    assert not seen_sums & unseen_sums
    assert not seen_tools & unseen_tools


def test_training_contains_no_held_out_wording():
    draw = Draw(1)
    assert {draw.wording(["seen"], ["unseen"]) for _ in range(100)} == {"seen"}


@pytest.mark.parametrize("maker", SUBJECTS, ids=lambda maker: maker.__name__)
def test_corpus_answers_are_judged_correct(maker):
    draw = Draw(5)
    for thinking in (True, False):
        sample = single(draw, maker, thinking)
        assert judge(sample, as_written(sample)).good


def as_written(sample):
    """The reply as the model is to write it."""
    reply = sample.reply
    thought = f"<think>\n{reply['reasoning_content']}\n</think>\n\n" if sample.thinking else ""
    calls = (called(call["function"]) for call in reply.get("tool_calls", ()))
    return f"{thought}{reply['content'] or ''}{''.join(calls)}{TURN_END}"


def called(function):
    return f"<tool_call>\n{json.dumps(function)}\n</tool_call>"
