"""nn.TransformerEncoder and nn.MultiheadAttention on padded sequences: native's nested fast path, zeros included."""

import copy

import pytest
import torch
from torch import nn

DEVICE = "minitorch"
PADDINGS = [
    [[0, 0, 1], [0, 0, 0]],  # at the end: native makes a nested tensor of what is left, and zeros of the rest
    [[0, 1, 1], [0, 0, 1]],
    [[1, 0, 0], [0, 0, 1]],  # elsewhere: native keeps the tensor and masks
    [[1, 1, 1], [0, 0, 0]],
]


def encode(encoder, x, **masks):
    """What an encoder gives on the device of x, or the error."""
    masks = {name: None if m is None else m.to(x.device) for name, m in masks.items()}
    try:
        with torch.inference_mode():
            return encoder(x, **masks).cpu()
    except Exception as error:  # compared with native's
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


@pytest.mark.filterwarnings("ignore")  # of nested tensors, which are a prototype, and of masks of different types
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("nested", [True, False])
def test_an_encoder_evaluates_padded_sequences(nested, activation, norm_first, batch_first):
    """The zeros where native cut the padding off are there as well."""
    torch.manual_seed(0)
    options = {"activation": activation, "norm_first": norm_first, "batch_first": batch_first}
    layer = nn.TransformerEncoderLayer(16, 4, 32, **options)
    native = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=nested).eval()
    ours = copy.deepcopy(native).to(DEVICE)
    x = torch.randn(2, 3, 16) if batch_first else torch.randn(3, 2, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    for padding in PADDINGS:
        mask = torch.tensor(padding, dtype=torch.bool)
        as_float = torch.zeros(mask.shape).masked_fill(mask, float("-inf"))
        for masks in (
            {"src_key_padding_mask": mask},
            {"src_key_padding_mask": as_float},
            {"src_key_padding_mask": mask, "mask": causal},
            {"src_key_padding_mask": mask, "mask": causal.isinf()},
            {"src_key_padding_mask": mask, "mask": causal, "is_causal": None},
        ):
            expected, found = encode(native, x, **masks), encode(ours, x.to(DEVICE), **masks)
            if isinstance(expected, str):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_trains_on_padded_sequences():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    native = nn.TransformerEncoder(layer, 2)
    ours = copy.deepcopy(native).to(DEVICE)
    x, mask = torch.randn(2, 3, 16), torch.tensor(PADDINGS[0], dtype=torch.bool)
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        module(x.to(device), src_key_padding_mask=mask.to(device)).square().sum().backward()
    for a, b in zip(ours.parameters(), native.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_of_nested_tensors(need_weights):
    torch.manual_seed(0)
    native = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    ours = copy.deepcopy(native).to(DEVICE)
    pieces = [torch.randn(2, 16), torch.randn(5, 16)]
    results = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        x = torch.nested.nested_tensor(pieces, device=device)
        with torch.no_grad():
            out, weights = module(x, x, x, need_weights=need_weights)
        results.append([out.to_padded_tensor(0.0).cpu(), weights if weights is None else weights.cpu()])
    (expected, expected_weights), (found, found_weights) = results
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (found_weights is None) == (expected_weights is None)
    if expected_weights is not None:
        torch.testing.assert_close(found_weights, expected_weights, rtol=1e-5, atol=1e-5)
