"""out= of products with vectors: shapes, dtypes and memory that native takes, resizes or refuses, in its order."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, DEVICE, assert_same_error, error_of

DTYPES = [
    *(torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64),
    *(torch.complex32, torch.float8_e5m2, torch.uint16),
]
PRODUCTS = {
    "mv": lambda x, out: torch.mv(x, x[0], out=out),
    "addmv": lambda x, out: torch.addmv(x[:, 0], x, x[0], out=out),
    "addmv of nothing": lambda x, out: torch.addmv(x[:, 0], x, x[0], beta=0, out=out),
    "matmul": lambda x, out: torch.matmul(x, x[0], out=out),
    "addr": lambda x, out: torch.addr(x, x[:, 0], x[0], out=out),
    "addr of a row": lambda x, out: torch.addr(x[0], x[:, 0], x[0], out=out),
    "outer": lambda x, out: torch.outer(x[:, 0], x[0], out=out),
    "ger": lambda x, out: torch.ger(x[:, 0], x[0], out=out),
    "addmm": lambda x, out: torch.addmm(x, x[:, :3], x, out=out),
    "mm": lambda x, out: torch.mm(x[:, :3], x, out=out),
}
OUTPUTS = {
    "right vector": lambda x: x.new_zeros(3),
    "right matrix": lambda x: x.new_zeros(3, 4),
    "number": lambda x: x.new_zeros(()),
    "nothing": lambda x: x.new_zeros(0),
    "longer": lambda x: x.new_zeros(12),
    "more dimensions": lambda x: x.new_zeros(1, 3, 4),
    "expanded vector": lambda x: x.new_zeros(1).expand(3),
    "expanded rows": lambda x: x.new_zeros(4).expand(3, 4),
    "expanded and longer": lambda x: x.new_zeros(1).expand(12),
    "strided": lambda x: x.new_zeros(6)[::2],
    "transposed": lambda x: x.new_zeros(4, 3).t(),
    **{f"vector of {d}": lambda x, d=d: torch.zeros(3, dtype=d, device=x.device) for d in DTYPES},
    **{f"matrix of {d}": lambda x, d=d: torch.zeros(3, 4, dtype=d, device=x.device) for d in DTYPES},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(ASYNCHRONOUS, reason="the names of native's kernels on the CPU")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_outputs(name, dtype):
    for what, make in OUTPUTS.items():
        outs, errors = [], []
        for device in ("cpu", DEVICE):
            x = torch.arange(1.0, 13).reshape(3, 4).fmod(3).to(dtype).to(device)
            outs.append(make(x))
            errors.append(error_of(PRODUCTS[name], x, outs[-1]))
        native, ours = outs
        if errors[0] is None:
            assert errors[1] is None, f"{what}: {errors[1]!r}"
            torch.testing.assert_close(ours.cpu(), native, msg=lambda m, what=what: f"{what}: {m}")
            assert (ours.shape, ours.stride()) == (native.shape, native.stride()), what
        else:
            assert_same_error(errors[1], errors[0])


@pytest.mark.parametrize("name", PRODUCTS)
def test_output_elsewhere(name):
    x = torch.ones(3, 4)
    for a, out in (
        (x, torch.zeros(3, device=DEVICE)),
        (x.to(DEVICE), torch.zeros(3)),
        (x.to(DEVICE), torch.zeros(3, 4)),
    ):
        with pytest.raises(RuntimeError):
            PRODUCTS[name](a, out)
