"""Initial weights with which the demo model can already copy.

Copying takes two attention heads in consecutive layers (an induction circuit). The previous-token head adds
to each token the identity of the token before it. The induction head looks for an earlier occurrence of the
current token and predicts the token that followed there. Starting from random weights, a model this small
finds these heads only after very many texts. So the heads are written into the first two layers by hand, and
training refines them.
"""

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

HEAD_DIM = 64
_SCALE = 0.02  # standard deviation of transformers' random weights
_CONSTANT = 0  # hidden channel with the same value for all tokens, so that heads can attend by position only
_CONSTANT_SIZE = 4.0  # size of that channel relative to the others
_FAST = 8  # number of rotary pairs that rotate fast enough to distinguish neighboring positions
_SLOW = 20  # first rotary pair that hardly rotates within a text
_LOOK_BACK = 1.7
_TELL = 3.0
_LOOK_FOR = 1.5
_SAY = 4.0


@torch.no_grad()
def wire_copying(model: LlamaForCausalLM) -> None:
    """Write the copying heads (previous-token and induction) into layers 0 and 1, one pair per KV head."""
    config = model.config
    for layer in model.model.layers:  # all other heads and feed-forward blocks output zeros at first
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    model.model.embed_tokens.weight[:, _CONSTANT] = _CONSTANT_SIZE * _SCALE
    first, second = (model.model.layers[at].self_attn for at in (0, 1))
    slow = _slow_channels(config.head_dim)
    heads = config.num_key_value_heads
    # Orthogonal, so that a head does not read what another head has written.
    told = _orthonormal(2 * heads * len(slow), config.hidden_size).chunk(2 * heads)
    said = _orthonormal(heads * config.head_dim, config.hidden_size).chunk(heads)
    for kv_head in range(heads):
        head = kv_head * (config.num_attention_heads // heads)
        read, write = told[2 * kv_head : 2 * kv_head + 2]
        _look_back(first, head, kv_head, config.rope_parameters["rope_theta"])
        _rows(first.v_proj, kv_head)[slow] = read
        _columns(first.o_proj, head)[:, slow] = _SCALE * _TELL * write.T
        _rows(second.q_proj, head)[slow] = _LOOK_FOR * read
        _rows(second.k_proj, kv_head)[slow] = _LOOK_FOR * write
        _rows(second.v_proj, kv_head).copy_(said[kv_head])
        _columns(second.o_proj, head).copy_(_SCALE * _SAY * said[kv_head].T)


def _look_back(attention: LlamaAttention, head: int, kv_head: int, theta: float) -> None:
    """Make a head attend to the previous position: its query is its key, rotated by one position."""
    half = attention.head_dim // 2
    angles = theta ** -(torch.arange(_FAST) / half)
    query, key = _rows(attention.q_proj, head)[:, _CONSTANT], _rows(attention.k_proj, kv_head)[:, _CONSTANT]
    key[:_FAST] = _LOOK_BACK
    query[:_FAST] = _LOOK_BACK * angles.cos()
    query[half : half + _FAST] = -_LOOK_BACK * angles.sin()


def _slow_channels(head_dim: int) -> Tensor:
    """Return a head's channels whose rotary pairs hardly rotate.

    In these channels, a query matches a key almost equally well at any distance.
    """
    half = torch.arange(_SLOW, head_dim // 2)
    return torch.cat((half, half + head_dim // 2))


def _rows(projection: torch.nn.Linear, head: int) -> Tensor:
    """Return the rows of a projection that compute one head's queries, keys or values."""
    return projection.weight.unflatten(0, (-1, HEAD_DIM))[head]


def _columns(projection: torch.nn.Linear, head: int) -> Tensor:
    """Return the columns of the output projection that read one head's output."""
    return projection.weight.unflatten(1, (-1, HEAD_DIM))[:, head]


def _orthonormal(rows: int, columns: int) -> Tensor:
    """Return random orthonormal rows that are zero in the channel `_CONSTANT`."""
    random = torch.randn(columns, rows)
    random[_CONSTANT] = 0
    return torch.linalg.qr(random).Q.T.contiguous()
