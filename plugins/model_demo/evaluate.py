"""Measures the share of right answers on held-out data: `python -m llmfw.plugins.model_demo.evaluate`."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .corpus import SUBJECTS, Draw, Sample, single
from .corpus.mix import beside_tools, long_conversation
from .encoding import Encoder, prompt_of
from .judge import Verdict, judge
from .tokenization import TURN_END
from .train import WEIGHTS, held_out_batches, mean_loss

SEED = 1000
ROWS_AT_ONCE = 48
MOST_NEW_TOKENS = 200
MOST_NEW_TOKENS_OF_STORY = 700


@dataclass(frozen=True)
class Rates:
    """The results on one subject: the number of samples, and rates of good replies.

    Attributes:
        samples: number of samples.
        right: share of right replies.
        ended: share of replies that ended their turn.
        thinking_as_asked: share of replies with reasoning if and only if it was asked for.
        valid: share of replies with valid syntax; None: the subject requires no syntax.
    """

    samples: int
    right: float
    ended: float
    thinking_as_asked: float
    valid: float | None


def rates(verdicts: list[Verdict]) -> Rates:
    def share(values: list[bool]) -> float:
        return round(sum(values) / len(values), 4)

    valid = [verdict.valid for verdict in verdicts if verdict.valid is not None]
    return Rates(
        len(verdicts),
        share([verdict.right for verdict in verdicts]),
        share([verdict.ended for verdict in verdicts]),
        share([verdict.thought_as_asked for verdict in verdicts]),
        share(valid) if valid else None,
    )


def held_out_samples(each: int) -> Iterator[Sample]:
    """Yield held-out samples: `each` of every maker, `each` with unneeded tools, `each` long conversations.

    Every other sample has thinking. In long conversations, thinking is random.
    """
    for at, maker in enumerate(SUBJECTS):
        draw = Draw(SEED + at, held_out=True)
        yield from (single(draw, maker, thinking=bool(index % 2)) for index in range(each))
    draw = Draw(SEED + len(SUBJECTS), held_out=True)
    yield from (beside_tools(draw, thinking=bool(index % 2)) for index in range(each))
    yield from (long_conversation(draw) for _ in range(each))


class Responder:
    """Generates replies by greedy decoding, in batches."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._tokenizer = tokenizer
        tokenizer.padding_side = "left"

    def replies(self, prompts: list[str], most_new_tokens: int) -> Iterator[str]:
        """Yield the reply to each prompt up to the end of its turn, with `<|im_end|>` if generated."""
        for at in range(0, len(prompts), ROWS_AT_ONCE):
            yield from self._some(prompts[at : at + ROWS_AT_ONCE], most_new_tokens)

    @torch.inference_mode()
    def _some(self, prompts: list[str], most_new_tokens: int) -> Iterator[str]:
        inputs = self._tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        outputs = self._model.generate(**inputs, max_new_tokens=most_new_tokens)
        for tokens in outputs[:, inputs.input_ids.shape[1] :]:
            text = self._tokenizer.decode(tokens)
            turn, mark, _ = text.partition(TURN_END)
            yield turn + mark


def verdicts_on(
    responder: Responder, tokenizer: PreTrainedTokenizerBase, samples: list[Sample]
) -> dict[str, list[Verdict]]:
    """Let the model reply to the samples; return the verdicts on its replies, by subject."""
    by_subject = defaultdict(list)
    for sample in samples:
        by_subject[sample.subject].append(sample)
    verdicts = {}
    for subject, of_subject in by_subject.items():
        of_subject.sort(key=lambda sample: len(prompt_of(tokenizer, sample)))
        most = MOST_NEW_TOKENS_OF_STORY if subject == "stories" else MOST_NEW_TOKENS
        prompts = [prompt_of(tokenizer, sample) for sample in of_subject]
        replies = responder.replies(prompts, most)
        verdicts[subject] = [judge(sample, reply) for sample, reply in zip(of_subject, replies, strict=True)]
    return verdicts


def table(of_subjects: dict[str, Rates]) -> str:
    """Return the rates as a Markdown table."""
    lines = ["| subject | samples | right | ended | thinks as asked | valid |", "|---|---|---|---|---|---|"]
    for subject, of in of_subjects.items():
        valid = "" if of.valid is None else f"{of.valid:.1%}"
        lines.append(
            f"| {subject} | {of.samples} | {of.right:.1%} | {of.ended:.1%} | {of.thinking_as_asked:.1%} | {valid} |"
        )
    return "\n".join(lines)


def add_to_record(path: Path, more: dict[str, Any]) -> None:
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | more, indent=2) + "\n")


@click.command()
@click.option(
    "--folder", type=click.Path(path_type=Path, exists=True), default=WEIGHTS, help="The model's folder."
)
@click.option("--each", default=48, show_default=True, help="Samples for each maker of the corpus.")
@click.option("--show-wrong", default=0, help="How many wrong answers of each subject to print.")
def main(folder: Path, each: int, show_wrong: int) -> None:
    """Print the held-out rates and loss of a trained model and add them to its training.json."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    verdicts = verdicts_on(Responder(model, tokenizer), tokenizer, list(held_out_samples(each)))
    for subject, of_subject in verdicts.items():
        for verdict in [verdict for verdict in of_subject if not verdict.good][:show_wrong]:
            click.echo(
                f"--- {subject}\n{verdict.sample.prompt[-1]}\nwanted: {verdict.sample.reply}\ngot: {verdict.reply}"
            )
    by_subject = {subject: rates(of_subject) for subject, of_subject in verdicts.items()}
    by_subject["all"] = rates([verdict for of_subject in verdicts.values() for verdict in of_subject])
    loss = mean_loss(model, held_out_batches(Encoder(tokenizer), SEED, 60))
    click.echo(f"{table(by_subject)}\n\nheld-out loss {loss:.4f}")
    summary = {
        "held_out_loss": round(loss, 4),
        "rates": {subject: vars(of) for subject, of in by_subject.items()},
    }
    add_to_record(folder / "training.json", summary)


if __name__ == "__main__":
    main()
