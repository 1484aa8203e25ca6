"""The demo model's tokenizer: byte-level BPE, trained on the corpus."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE = 4096

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = [END_OF_TEXT, TURN_START, TURN_END]

# Each is one token, but not a special one: decoding keeps them for the reasoning and tool parsers.
MARKUP_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]

# A lower-case word includes the space before it; a capitalized word does not. So a name has the same tokens
# in a sentence as inside JSON quotes. Otherwise, a model this small could not copy it.
PIECES = (
    r"'(?:s|t|re|ve|m|ll|d)\b"
    r"| ?[\p{Ll}\p{Lo}\p{Lm}\p{M}]+"
    r"|[\p{Lu}\p{Lt}][\p{Ll}\p{Lo}\p{Lm}\p{M}]*"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

TEMPLATE = Path(__file__).parent / "chat_template.jinja"


def train_tokenizer(texts: Iterable[str], context_length: int) -> PreTrainedTokenizerFast:
    """Train a BPE tokenizer on texts.

    Its vocabulary has every byte, so any text can be encoded and decoded.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(MARKUP_TOKENS),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    return _with_template(tokenizer, context_length)


def load_tokenizer(folder: Path, context_length: int) -> PreTrainedTokenizerFast:
    """Load a trained tokenizer from a folder, with the current chat template."""
    return _with_template(Tokenizer.from_file(str(folder / "tokenizer.json")), context_length)


def _with_template(tokenizer: Tokenizer, context_length: int) -> PreTrainedTokenizerFast:
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=context_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE.read_text()
    return fast
