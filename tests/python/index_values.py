"""Values, layouts and dtypes for the tests of indexing."""

import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ALL = [*FLOATS, *INTS, torch.bool, torch.complex64, torch.complex128]


def values(*shape, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, dtype=torch.int64).to(dtype)


def layouts(x):
    """The same values as contiguous, transposed memory, every other element of a larger one with an offset."""
    yield x
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 3, dtype=x.dtype)
    wide[..., 3::2] = x
    yield wide[..., 3::2]
