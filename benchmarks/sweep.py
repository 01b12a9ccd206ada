"""Every operator at a small, a medium and a large size on one thread: finds those that are slower than native.

    OMP_NUM_THREADS=1 python -m benchmarks.sweep --only 'sum|sort' --below 0.8

Both devices take turns; the shortest of many blocks counts, since what else the machine does only ever adds. This is
for finding, not for reporting: the cases of benchmarks/cases have the method for that.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

SIZES = {"64": (8, 8), "4096": (64, 64), "1M": (1024, 1024)}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "i64": torch.int64}
FLOAT, ALL, INT = ("f32", "f64", "bf16"), ("f32", "f64", "bf16", "i64"), ("i64",)


def words(text: str) -> list[str]:
    return text.split()


UNARY_FLOAT = words("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc erfinv lgamma digamma sigmoid sqrt rsqrt reciprocal ceil floor round trunc frac i0 sinc logit nan_to_num isnan
isinf isfinite deg2rad""")
ACTIVATIONS = words("""relu relu6 gelu silu mish elu selu celu softplus softsign hardswish hardsigmoid hardtanh
leaky_relu logsigmoid tanhshrink softshrink hardshrink""")
UNARY_ALL = words("abs neg sign square logical_not clone sgn")
BINARY_FLOAT = words("atan2 hypot logaddexp xlogy copysign pow")
BINARY_ALL = words("add sub mul div maximum minimum fmax fmin eq lt remainder fmod floor_divide")
BINARY_INT = words("bitwise_and bitwise_or bitwise_xor bitwise_left_shift gcd")
REDUCTIONS_ALL = words("sum amax amin argmax argmin any all prod count_nonzero aminmax")
REDUCTIONS_FLOAT = words("mean var std logsumexp nansum norm var_mean")


def index_for(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(x.shape[1], x.shape, generator=generator).to(x.device)


def rows_for(x: torch.Tensor) -> torch.Tensor:
    return index_for(x)[0] % x.shape[0]


def of_x(f: Callable, **keywords: object) -> Callable:
    return lambda x, y, i: f(x, **keywords)


def of_both(f: Callable) -> Callable:
    return lambda x, y, i: f(x, y)


# name, dtypes, function of x, y and an index of the shape of x
def operators() -> Iterator[tuple[str, tuple[str, ...], Callable]]:
    for name in UNARY_FLOAT:
        yield name, FLOAT, of_x(getattr(torch, name))
    for name in ACTIVATIONS:
        yield name, FLOAT, of_x(getattr(F, name))
    for name in UNARY_ALL:
        yield name, ALL, of_x(getattr(torch, name))
    for name in BINARY_FLOAT:
        yield name, FLOAT, of_both(getattr(torch, name))
    for name in BINARY_ALL:
        yield name, ALL, of_both(getattr(torch, name))
    for name in BINARY_INT:
        yield name, INT, of_both(getattr(torch, name))
    for names, dtypes in ((REDUCTIONS_ALL, ALL), (REDUCTIONS_FLOAT, FLOAT)):
        for name in names:
            f = getattr(torch, name)
            if name == "logsumexp":
                yield name, dtypes, of_x(f, dim=(0, 1))
            elif name != "aminmax":
                yield name, dtypes, of_x(f)
            yield f"{name} rows", dtypes, of_x(f, dim=1)
            yield f"{name} columns", dtypes, of_x(f, dim=0)
    for name in ("softmax", "log_softmax"):
        yield name, FLOAT, of_x(getattr(F, name), dim=1)
        yield f"{name} columns", FLOAT, of_x(getattr(F, name), dim=0)
    for name in ("cumsum", "cumprod", "cummax", "logcumsumexp"):
        dtypes = FLOAT if name == "logcumsumexp" else ALL
        yield name, dtypes, of_x(getattr(torch, name), dim=1)
        yield f"{name} columns", dtypes, of_x(getattr(torch, name), dim=0)
    yield "sort", ALL, lambda x, y, i: x.sort(1)
    yield "sort columns", ALL, lambda x, y, i: x.sort(0)
    yield "argsort", ALL, lambda x, y, i: x.argsort(1)
    yield "topk", ALL, lambda x, y, i: x.topk(5, 1)
    yield "unique", ALL, lambda x, y, i: x[0].unique()
    yield "gather", ALL, lambda x, y, i: x.gather(1, i)
    yield "scatter", ALL, lambda x, y, i: x.scatter(1, i, y)
    yield "scatter_add", ALL, lambda x, y, i: x.scatter_add(1, i, y)
    yield "index_select 0", ALL, lambda x, y, i: x.index_select(0, i[0])
    yield "index_select 1", ALL, lambda x, y, i: x.index_select(1, i[0])
    yield "index_add", ALL, lambda x, y, i: x.index_add(0, i[0], y)
    yield "index", ALL, lambda x, y, i: x[i[0], i[1]]
    yield "index_put", ALL, lambda x, y, i: x.index_put((i[0],), y)
    yield "take", ALL, lambda x, y, i: x.take(i)
    yield "masked_fill", ALL, lambda x, y, i: x.masked_fill(i > 5, 2)
    yield "masked_select", ALL, lambda x, y, i: x.masked_select(i > 5)
    yield "where", ALL, lambda x, y, i: torch.where(i > 5, x, y)
    yield "nonzero", ALL, lambda x, y, i: x.nonzero()
    yield "tril", ALL, lambda x, y, i: x.tril()
    yield "flip", ALL, lambda x, y, i: x.flip(0)
    yield "flip rows", ALL, lambda x, y, i: x.flip(1)
    yield "roll", ALL, lambda x, y, i: x.roll(3, 1)
    yield "cat", ALL, lambda x, y, i: torch.cat([x, y], 1)
    yield "stack", ALL, lambda x, y, i: torch.stack([x, y], -1)
    yield "repeat", ALL, lambda x, y, i: x.repeat(2, 2)
    yield "contiguous of t", ALL, lambda x, y, i: x.t().clone(memory_format=torch.contiguous_format)
    yield "pad", ALL, lambda x, y, i: F.pad(x, (1, 1))
    yield "to f32", ALL, lambda x, y, i: x.to(torch.float32, copy=True)
    yield "to bf16", ALL, lambda x, y, i: x.to(torch.bfloat16, copy=True)
    yield "to i64", ALL, lambda x, y, i: x.to(torch.int64, copy=True)
    yield "add scalar", ALL, lambda x, y, i: x + 2
    yield "add row", ALL, lambda x, y, i: x + y[0]
    yield "add column", ALL, lambda x, y, i: x + y[:, :1]
    yield "add_", ALL, lambda x, y, i: x.add_(y, alpha=0)
    yield "clamp", ALL, lambda x, y, i: x.clamp(-1, 1)
    yield "pow 2", ALL, lambda x, y, i: x**2
    yield "pow 3", ALL, lambda x, y, i: x**3
    yield "lerp", FLOAT, lambda x, y, i: torch.lerp(x, y, 0.3)
    yield "addcmul", ALL, lambda x, y, i: torch.addcmul(x, x, y)
    yield "layer_norm", FLOAT, lambda x, y, i: F.layer_norm(x, x.shape[1:])
    yield "mm", FLOAT, lambda x, y, i: x[:256, :256] @ y[:256, :256]
    yield "mv", FLOAT, lambda x, y, i: x @ y[0]
    yield "mse_loss", FLOAT, lambda x, y, i: F.mse_loss(x, y)
    yield "dropout", FLOAT, lambda x, y, i: F.dropout(x, 0.3)
    yield "rand", FLOAT, lambda x, y, i: torch.rand_like(x)
    yield "randn", FLOAT, lambda x, y, i: torch.randn_like(x)
    yield "one_hot", INT, lambda x, y, i: F.one_hot(i[0], i.shape[1])
    yield "bincount", INT, lambda x, y, i: i[0].bincount()
    yield "searchsorted", ALL, lambda x, y, i: torch.searchsorted(x, y)


def inputs(size: str, dtype: str, layout: str, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    tensors = []
    for _ in range(2):
        values = torch.rand(SIZES[size], generator=generator, dtype=torch.float64) * 0.9 + 0.05
        values = (values * 100).long() + 1 if dtype == "i64" else values.to(DTYPES[dtype])
        tensors.append(values.to(device).t().contiguous().t() if layout == "t" else values.to(device))
    return (*tensors, index_for(tensors[0]))


def shortest(functions: list[Callable], seconds: float) -> list[float]:
    best, counts = [float("inf")] * 2, []
    for function in functions:
        function()
        start = time.perf_counter()
        function()
        counts.append(max(1, int(seconds / 8 / max(time.perf_counter() - start, 1e-7))))
    for turn in range(8):
        for k in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            for _ in range(counts[k]):
                functions[k]()
            best[k] = min(best[k], (time.perf_counter() - start) / counts[k])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression of operators")
    parser.add_argument("--below", type=float, default=0.8, help="print ratios below this")
    parser.add_argument("--sizes", default="64,4096,1M")
    parser.add_argument("--dtypes", default="f32,f64,bf16,i64")
    parser.add_argument("--layouts", default="c,t")
    parser.add_argument("--seconds", type=float, default=0.016, help="a device and case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, dtypes, function in operators():
        if not re.search(args.only, name):
            continue
        for size in args.sizes.split(","):
            for dtype in args.dtypes.split(","):
                if dtype not in dtypes:
                    continue
                for layout in args.layouts.split(","):
                    label = f"{name:20s} {size:>5s} {dtype:5s} {layout}"
                    try:
                        operands = [inputs(size, dtype, layout, device) for device in ("cpu", "minitorch")]
                        native, ours = shortest([partial(function, *o) for o in operands], args.seconds)
                    except (RuntimeError, NotImplementedError) as error:
                        print(f"{label}  {str(error).splitlines()[0][:90]}", flush=True)
                        continue
                    if native / ours < args.below:
                        print(f"{label}  {native * 1e6:9.1f} {ours * 1e6:9.1f} us  {native / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
