"""Trains the demo model from scratch: `python -m llmfw.plugins.model_demo.train`."""

import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import click
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .corpus import Draw, Sample, copying_drills, samples
from .encoding import IGNORED, Batch, Encoder, batches, text_of
from .muon import Muon
from .tokenization import END_OF_TEXT, TURN_END, VOCABULARY_SIZE, load_tokenizer, train_tokenizer
from .wiring import wire_copying

WEIGHTS = Path(__file__).parent / "weights"
CONTEXT_LENGTH = 2048


@dataclass(frozen=True)
class Recipe:
    """The training hyperparameters: all that the result depends on, except the machine's rounding."""

    seed: int = 0
    steps: int = 5000
    minutes: float | None = None  # time limit; with a limit, the result depends on the machine's speed
    tokens_per_batch: int = 1536
    batches_per_step: int = 2
    matrix_rate: float = 0.012
    other_rate: float = 0.003
    warm_up: float = 0.02
    decay: float = 0.6
    drill_steps: int = 150
    tokenizer_samples: int = 30000


@dataclass
class Record:
    """Statistics of a training run."""

    steps: int = 0
    tokens: int = 0
    minutes: float = 0.0
    train_loss: float = math.nan


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    turn_end, end_of_text = tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=turn_end,
        pad_token_id=end_of_text,
    )
    model = LlamaForCausalLM(config)
    # On a CPU, with rows this short, eager attention trains a quarter faster than SDPA.
    model.set_attn_implementation("eager")
    wire_copying(model)
    model.generation_config = GenerationConfig(
        eos_token_id=[turn_end, end_of_text], pad_token_id=end_of_text, do_sample=False
    )
    return model


def loss_sum(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Return the sum of the loss over the learned tokens. Only these pass through the output layer."""
    tokens, labels = batch
    # Disable autocast's cache of weights, because threads would share the cache.
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        learned = labels[:, 1:] != IGNORED
        logits = model.lm_head(hidden[:, :-1][learned])
    return cross_entropy(logits.float(), labels[:, 1:][learned], reduction="sum")


def learned_tokens(batch: Batch) -> int:
    return int((batch[1][:, 1:] != IGNORED).sum())


@torch.no_grad()
def mean_loss(model: LlamaForCausalLM, held_out: list[Batch]) -> float:
    total = sum(float(loss_sum(model, batch)) for batch in held_out)
    return total / sum(learned_tokens(batch) for batch in held_out)


def held_out_batches(encoder: Encoder, seed: int, count: int) -> list[Batch]:
    """Return batches of held-out samples."""
    source = samples(Draw(seed, held_out=True))
    return list(islice(batches(source, encoder, 2048, CONTEXT_LENGTH, seed), count))


def training_batches(recipe: Recipe, encoder: Encoder) -> Iterator[Batch]:
    """Yield batches of copying drills first, then of all samples.

    The drills come first so that the model learns early to use the heads that `wiring` has written.
    """

    def of(source: Iterator[Sample]) -> Iterator[Batch]:
        return batches(source, encoder, recipe.tokens_per_batch, CONTEXT_LENGTH, recipe.seed)

    drills = of(copying_drills(Draw(recipe.seed + 2)))
    return chain(islice(drills, recipe.drill_steps * recipe.batches_per_step), of(samples(Draw(recipe.seed))))


def rate_at(recipe: Recipe, progress: float) -> float:
    """Return the factor of the learning rates: linear warm-up, constant, linear decay to zero."""
    return max(0.0, min(1.0, progress / recipe.warm_up, (1 - progress) / recipe.decay))


class Trainer:
    """Trains a model by a recipe.

    The batches of a step are computed in parallel, one thread each. These threads wait for each other
    only once per step, whereas threads that share each matrix product wait hundreds of times.
    """

    def __init__(self, model: LlamaForCausalLM, recipe: Recipe, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._parameters = list(model.parameters())
        self.model = model
        self.recipe = recipe
        self.record = Record()
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
        self._optimizers = (
            Muon(matrices, lr=recipe.matrix_rate),
            torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        )
        self._base_rates = (recipe.matrix_rate, recipe.other_rate)

    def run(self, source: Iterator[Batch], held_out: list[Batch], save: Callable[[Record], None]) -> None:
        """Run all steps. Evaluates, reports and saves every 200 steps, and at the end."""
        started = time.monotonic()
        progress, smooth = 0.0, 0.0
        while progress < 1:
            self._set_rates(rate_at(self.recipe, max(progress, 1e-3)))
            loss = self._step(list(islice(source, self.recipe.batches_per_step)))
            smooth = loss if not smooth else 0.98 * smooth + 0.02 * loss
            self.record.steps += 1
            self.record.minutes = (time.monotonic() - started) / 60
            progress = self._progress()
            self.record.train_loss = round(smooth, 4)
            if self.record.steps % 200 == 0 or progress >= 1:
                self._report(mean_loss(self.model, held_out))
                save(self.record)

    def _progress(self) -> float:
        """Return the completed share of the run, from 0 to 1."""
        of_steps = self.record.steps / self.recipe.steps
        return max(of_steps, self.record.minutes / self.recipe.minutes) if self.recipe.minutes else of_steps

    def _set_rates(self, factor: float) -> None:
        for optimizer, rate in zip(self._optimizers, self._base_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor

    def _step(self, step_batches: list[Batch]) -> float:
        """Update the weights once, from several batches; return the mean loss over their tokens."""
        count = sum(learned_tokens(batch) for batch in step_batches)
        results = list(self._pool.map(self._loss_and_gradients, step_batches))
        for parameter, *gradients in zip(self._parameters, *(g for _, g in results), strict=True):
            parameter.grad = sum(gradients[1:], gradients[0]) / count
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.record.tokens += sum(batch[0].numel() for batch in step_batches)
        return sum(loss for loss, _ in results) / count

    def _loss_and_gradients(self, batch: Batch) -> tuple[float, tuple[torch.Tensor, ...]]:
        loss = loss_sum(self.model, batch)
        return loss.item(), torch.autograd.grad(loss, self._parameters)

    def _report(self, held_out_loss: float) -> None:
        r = self.record
        speed = r.tokens / r.minutes / 60
        click.echo(
            f"step {r.steps:5}  {r.minutes:5.1f} min  {r.tokens / 1e6:5.1f} M tokens ({speed:.0f}/s)  "
            f"loss {r.train_loss:.4f}  held-out {held_out_loss:.4f}"
        )


def save(out: Path, trainer: Trainer, tokenizer: PreTrainedTokenizerFast, record: Record) -> None:
    """Write the model in bf16 and the tokenizer for transformers, and the recipe and statistics as JSON."""
    out.mkdir(parents=True, exist_ok=True)
    deepcopy(trainer.model).to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # safetensors makes it readable only to its owner
    tokenizer.save_pretrained(out)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    summary = {"recipe": asdict(trainer.recipe), **asdict(record), "versions": versions}
    (out / "training.json").write_text(json.dumps(summary, indent=2) + "\n")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=WEIGHTS, help="Where to write the model.")
@click.option("--seed", default=Recipe.seed, show_default=True)
@click.option("--steps", default=Recipe.steps, show_default=True)
@click.option("--minutes", type=float, help="End by then; the result then depends on the machine.")
@click.option("--threads", default=2, show_default=True)
@click.option("--tokenizer", "tokenizer_folder", type=click.Path(path_type=Path), help="Reuse this one.")
def main(
    out: Path, seed: int, steps: int, minutes: float | None, threads: int, tokenizer_folder: Path | None
) -> None:
    """Train the demo model's tokenizer and weights on the generated corpus."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    recipe = Recipe(seed=seed, steps=steps, minutes=minutes)
    tokenizer = (
        load_tokenizer(tokenizer_folder, CONTEXT_LENGTH) if tokenizer_folder else make_tokenizer(recipe)
    )
    encoder = Encoder(tokenizer)
    source = training_batches(recipe, encoder)
    with ThreadPoolExecutor(threads) as pool:
        trainer = Trainer(make_model(tokenizer), recipe, pool)
        trainer.run(source, held_out_batches(encoder, seed, 24), partial(save, out, trainer, tokenizer))
    click.echo(f"Saved to {out}.")


def make_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the corpus.

    An untrained tokenizer renders the corpus's samples to text with the chat template.
    """
    writer = train_tokenizer([], CONTEXT_LENGTH)
    texts = (
        text_of(writer, sample) for sample in islice(samples(Draw(recipe.seed + 1)), recipe.tokenizer_samples)
    )
    return train_tokenizer(texts, CONTEXT_LENGTH)


if __name__ == "__main__":
    main()
