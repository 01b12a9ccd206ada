"""Which dtypes native CPU refuses, operator by operator, and with which words: csrc/bridge/native_refusals.inc.

Native's errors name not the operator but a macro's argument ("logcumsumexp_out_cpu" not implemented for 'Long'). This
calls every operator of op_db on native CPU with its own sample inputs in every dtype, notes which aten operator was the
last to be called before such an error, and writes a line of C++ for each pair. Run it when the pinned torch changes:

    TORCH_DEVICE_BACKEND_AUTOLOAD=0 python tools/native_refusals.py
"""

import collections
import copy
import itertools
import pathlib
import re
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

TARGET = pathlib.Path(__file__).resolve().parent.parent / "csrc" / "bridge" / "native_refusals.inc"
TEXT = re.compile(r"^\"([^\"]+)\" not implemented for '(\w+)'$")
SAMPLES = 4
LARGEST = 1 << 16  # elements of a sample's tensor
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
)


class LastCall(TorchDispatchMode):
    """Remembers the aten operator called last."""

    name = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.name = func.overloadpacket.__name__
        return func(*args, **(kwargs or {}))


# Sets that csrc/bridge/native_names.cpp has names for.
GROUPS = {
    "Float8": {"Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2", "Float8_e5m2fnuz", "Float8_e8m0fnu"},
    "Unsigned": {"UInt16", "UInt32", "UInt64"},
    "Integers": {"Byte", "Char", "Short", "Int", "Long"},
    "Complex": {"ComplexFloat", "ComplexDouble"},
    "Halves": {"Half", "BFloat16"},
    "Floats": {"Float", "Double"},
}


def set_of(dtypes):
    """The C++ expression for a set of dtypes."""
    names, rest = [], set(dtypes)
    for group, members in GROUPS.items():
        if members <= rest:
            names.append(group)
            rest -= members
    return " | ".join(names + sorted(rest))


def base_name(op):
    """As minitorch::name_for_errors: without the underscore of in-place forms."""
    return op if op.endswith("__") or not op.endswith("_") else op[:-1]


def is_small(sample):
    tensors = (t for t in _pytree.tree_leaves((sample.input, sample.args)) if isinstance(t, torch.Tensor))
    return all(t.numel() <= LARGEST for t in tensors)


def in_dtype(sample, old, new):
    """The sample with its tensors of dtype ``old``, and a dtype argument that says so, in ``new``."""

    def convert(value):
        if isinstance(value, torch.Tensor):
            return value.to(new) if value.dtype == old else value.clone()
        return value

    result = copy.copy(sample)
    result.input, result.args, result.kwargs = (
        _pytree.tree_map(convert, part) for part in (sample.input, sample.args, sample.kwargs)
    )
    result.kwargs = {key: new if value is old else value for key, value in result.kwargs.items()}
    return result


def call(function, sample):
    """(operator called last, name in the error, dtype in the error); None if there is no such error."""
    mode = LastCall()
    try:
        with mode:
            function(sample.input, *sample.args, **sample.kwargs)
    except NotImplementedError as error:
        match = TEXT.match(str(error).split("\n")[0])
        return (base_name(mode.name), *match.groups()) if match else None
    except Exception:  # in other words
        return None
    return None


def sweep():
    refusals = collections.defaultdict(dict)
    for op in op_db:
        supported = op.supported_dtypes("cpu")
        known = [d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in supported]
        if not known:
            continue
        try:
            samples = op.sample_inputs("cpu", known[0], requires_grad=False)
            samples = list(itertools.islice((s for s in samples if is_small(s)), SAMPLES))
        except Exception as error:
            print(f"{op.name}: no samples: {error}", file=sys.stderr)
            continue
        functions = [f for f in (op.get_op(), op.get_inplace()) if f is not None]
        for dtype, sample, function in itertools.product(DTYPES, samples, functions):
            if dtype in supported:
                continue
            try:
                converted = in_dtype(sample, known[0], dtype)
            except Exception:  # fails as the operator would: no conversion to this dtype
                continue
            outcome = call(function, converted)
            operator, name, refused = outcome or ("", None, None)
            if operator and name:
                refusals[operator].setdefault(refused, name)
    return refusals


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    lines = []
    for operator, by_dtype in sorted(sweep().items()):
        by_name = collections.defaultdict(list)
        for dtype, name in by_dtype.items():
            by_name[name].append(dtype)
        for name, dtypes in sorted(by_name.items()):
            lines.append(f'{{"{operator}", "{name}", {set_of(dtypes)}}},\n')
    TARGET.write_text("// Written by tools/native_refusals.py.\n" + "".join(lines))


if __name__ == "__main__":
    main()
