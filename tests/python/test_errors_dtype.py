"""What operators say of dtypes that they do not take: native's words where native refuses, else the operator's name."""

import copy
import itertools
import re

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error, error_of

DTYPES = [torch.int64, torch.complex64, torch.bool, torch.uint32]
LARGEST = 1 << 12
# Kernel families, which nobody calls.
FAMILIES = re.compile(r"\"(scan\w*|reduce|sampler|resample|pool_scatter|plain_\w+|random|index_write|rotations)\"")
# Native chooses among several names by the way it happens to compute.
NAMES_BY_PATH = {
    *("histogram", "index_reduce", "normal"),
}
# Checks of ours that native makes later, or of another kind.
OTHER_WORDS = {
    "index_fill": "the value is converted first, and does not fit",
    "_unsafe_masked_index": "the value is converted first, and does not fit",
    "isin": "the sort that it uses refuses first",
    "unique": "the sort that it uses refuses first",
    "linalg.pinv": "the product before its check refuses first",
    "nn.functional.scaled_dot_product_attention": "native's fused kernel, ours is made of others",
    "stft": "PyTorch prints the type of the tensor",
}


def cases():
    for op in op_db:
        known = [d for d in (torch.float32, torch.int64, torch.bool) if d in op.supported_dtypes("cpu")]
        if known and not op.name.startswith(("sparse", "ops.")):
            yield op, known[0], [d for d in DTYPES if d not in op.supported_dtypes("cpu")]


def is_small(sample):
    tensors = (t for t in _pytree.tree_leaves((sample.input, sample.args)) if isinstance(t, torch.Tensor))
    return all(t.numel() <= LARGEST for t in tensors)


def on(sample, device, old, new):
    def convert(value):
        if isinstance(value, torch.Tensor):
            return (value.to(new) if value.dtype == old else value.clone()).to(device)
        return new if value is old else value

    moved = copy.copy(sample)
    moved.input, moved.args, moved.kwargs = (
        _pytree.tree_map(convert, part) for part in (sample.input, sample.args, sample.kwargs)
    )
    if "device" in moved.kwargs:
        moved.kwargs["device"] = device
    return moved


def error(op, sample):
    torch.manual_seed(0)
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except Exception as e:
        return e
    return None


@pytest.mark.parametrize("part", range(4))
def test_operators_refuse_dtypes_in_natives_words(part):
    wrong, compared = [], 0
    for turn, (op, base, refused) in enumerate(list(cases())[part::4]):
        samples = op.sample_inputs("cpu", base, requires_grad=False)
        for sample in itertools.islice((s for s in samples if is_small(s)), 1):
            for dtype in refused[turn % 2 :: 2]:
                native = error(op, on(sample, "cpu", base, dtype))
                if not isinstance(native, NotImplementedError):
                    continue
                ours = error(op, on(sample, DEVICE, base, dtype))
                if ours is None:  # computed here
                    continue
                compared += 1
                name, text = op.name.removeprefix("masked."), str(ours)
                if type(ours) is type(native) and text == str(native):
                    continue
                if ASYNCHRONOUS and "cannot be converted to type" in text:  # the kernel is asked after the numbers
                    continue
                excused = op.name in OTHER_WORDS or (name in NAMES_BY_PATH and " not implemented for '" in text)
                if not excused or FAMILIES.search(text):
                    wrong.append(f"{op.name} {op.variant_test_name} {dtype}: {ours!r} for {native!r}")
    assert not wrong, "\n".join(wrong)
    assert compared > 50


def test_what_native_computes_and_we_do_not_is_named_with_dtype_and_backend():
    x = torch.ones(3, device=DEVICE).to(torch.float8_e8m0fnu)
    text = r"^\"foreach_mul\" not implemented for 'Float8_e8m0fnu' on minitorch's (cpu|cuda) backend: .*convert this one first"
    with pytest.raises(NotImplementedError, match=text):
        torch._foreach_mul([x], [x])


def test_inner_operators_do_not_hide_the_outer_one():
    with pytest.raises(NotImplementedError, match=r"^\"bincount_cpu\" not implemented for 'UInt16'$"):
        torch.bincount(torch.ones(3, dtype=torch.uint16, device=DEVICE))
    with pytest.raises(NotImplementedError, match=r"^\"logcumsumexp_out_cpu\" not implemented for 'Long'$"):
        torch.logcumsumexp(torch.ones(3, dtype=torch.int64, device=DEVICE), 0)
    with pytest.raises(NotImplementedError, match=r"^\"cummax_cpu\" not implemented for 'ComplexFloat'$"):
        torch.cummax(torch.ones(3, dtype=torch.complex64, device=DEVICE), 0)


@pytest.mark.skipif(ASYNCHRONOUS, reason="the kernels on a GPU are not asked")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.int64, torch.uint16, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize(
    "name", ["erf", "frac", "gcd", "lt", "atan2", "fmod", "bitwise_and", "i0", "sign", "ldexp", "frexp"]
)
def test_no_elements_are_refused_as_many_are(name, dtype):
    f = getattr(torch, name)
    x = torch.ones(0, 3).to(dtype)
    operands = [x] if name in ("erf", "frac", "i0", "sign", "frexp") else [x, x]
    if error_of(f, *operands) is None:
        check(f, *operands)
    else:
        check_error(f, *operands)


@pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA counts integers")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
def test_histc_counts_floats_only(dtype):
    check_error(lambda x: x.histc(3), torch.arange(6).to(dtype))
    check_error(lambda x: x.histc(3, 0, 0), torch.arange(0).to(dtype))
    check_error(lambda x: x.histc(3, 0, 2**70), torch.arange(6).to(dtype))


CLAMPS = {
    "below": lambda x: x.clamp(min=True),
    "above": lambda x: x.clamp_max_(False),
    "both": lambda x: x.clamp(False, True),
    "by tensors": lambda x: x.clamp(x, x),
    "a list below": lambda x: torch._foreach_clamp_min([x], True),
    "a list above": lambda x: torch._foreach_minimum_([x], [True]),
}


@pytest.mark.skipif(ASYNCHRONOUS, reason="the kernels on a GPU are not asked")
@pytest.mark.parametrize("how", CLAMPS)
@pytest.mark.parametrize("elements", [0, 3])
def test_booleans_are_not_clamped(how, elements):
    check_error(CLAMPS[how], torch.ones(elements, dtype=torch.bool))
