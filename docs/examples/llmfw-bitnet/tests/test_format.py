import pytest
import torch
from llmfw_bitnet.format import BitNet, RoundedInputs, example

from llmfw.core import ModelError, StoredTensor
from llmfw.core.testing import QuantizedFormatTests


class TestBitNet(QuantizedFormatTests):
    @pytest.fixture
    def quantized_format(self):
        return BitNet


def read(settings, tensors):
    stored = {
        f"a.{name}": StoredTensor(str(each.dtype)[6:], tuple(each.shape)) for name, each in tensors.items()
    }
    format = BitNet({"quant_method": "bitnet", **settings})
    (layer,) = format.layers(stored)
    return format.weight(layer, tensors)


def test_weights_are_those_of_transformers():
    """Packed by transformers itself; the two classes of its layers use inverse scales."""
    bitnet = pytest.importorskip("transformers.integrations.bitnet")
    numbers = torch.randint(-1, 2, (64, 32))
    tensors = {"weight": bitnet.pack_weights(numbers.clone()), "weight_scale": torch.tensor([2.5])}
    assert torch.equal(read({"linear_class": "autobitlinear"}, tensors), numbers * 2.5)
    assert torch.equal(read({"linear_class": "bitlinear"}, tensors), numbers / 2.5)


def test_inputs_are_rounded_for_each_token():
    layer = RoundedInputs(torch.nn.Linear(3, 3, bias=False))
    layer.linear.weight.data = torch.eye(3)
    rows = torch.tensor([[127.0, 1.4, -3.6], [0.0, 0.0, 0.0], [254.0, 2.8, 0.9]])
    assert layer(rows).tolist() == [[127.0, 1.0, -4.0], [0.0, 0.0, 0.0], [254.0, 2.0, 0.0]]


def test_a_code_that_is_no_weight_is_refused():
    tensors = dict(example(64, 64, 0).tensors)
    tensors["weight"] = tensors["weight"] | 3
    with pytest.raises(ModelError, match=r"a\.weight has a code of 3"):
        read({}, tensors)


@pytest.mark.parametrize(
    "settings",
    [{"use_rms_norm": True}, {"quantization_mode": "online"}, {"linear_class": "other"}, {"bits": 3}],
)
def test_other_kinds_of_layers_are_refused(settings):
    with pytest.raises(ModelError, match=f"quantization_config.{next(iter(settings))}"):
        BitNet({"quant_method": "bitnet", **settings})
