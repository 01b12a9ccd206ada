"""Random numbers: for the same seed exactly those of the native device of the same kind, whatever the dtype, layout and
distribution.
"""

import copy
import math
import pickle

import pytest
import torch

from tests.python.twin import NATIVE, check_error

if NATIVE is None:
    pytest.skip("this torch has no CUDA to compare with", allow_module_level=True)

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHAPES = [(1,), (3,), (15,), (16,), (17,), (31,), (32,), (1000,), (5000, 7), (0,), ()]


def both(draw, seed=7):
    """The result of ``draw(device)`` on both devices, each freshly seeded with the same call."""
    torch.manual_seed(seed)
    native = draw(NATIVE)
    ours = draw("minitorch")
    assert ours.device.type == "minitorch"
    assert ours.dtype == native.dtype
    assert ours.stride() == native.stride()
    return native.cpu(), ours.cpu()


def assert_same(draw):
    native, ours = both(draw)
    assert torch.equal(ours, native) or (
        torch.equal(torch.isnan(ours), torch.isnan(native)) and torch.equal(ours.nan_to_num(), native.nan_to_num())
    )


@pytest.fixture(autouse=True)
def advanced_generators():
    """Both default generators seeded by torch.manual_seed and then moved by an odd number of draws in each test."""
    torch.manual_seed(0)
    yield


LAYOUTS = {
    "contiguous": lambda shape, dtype, device: torch.empty(shape, dtype=dtype, device=device),
    "transposed": lambda shape, dtype, device: torch.empty(shape[::-1], dtype=dtype, device=device).permute(
        list(range(len(shape) - 1, -1, -1))
    ),
    "strided": lambda shape, dtype, device: torch.zeros([2 * n for n in shape], dtype=dtype, device=device)[
        tuple(slice(None, None, 2) for _ in shape)
    ],
}

FLOAT_DRAWS = {
    "uniform": lambda t: t.uniform_(),
    "uniform(-3, 5)": lambda t: t.uniform_(-3, 5),
    "normal": lambda t: t.normal_(),
    "normal(2, 3)": lambda t: t.normal_(2, 3),
    "exponential": lambda t: t.exponential_(1.7),
    "cauchy": lambda t: t.cauchy_(0.5, 2),
    "log_normal": lambda t: t.log_normal_(0.1, 0.4),
}
ANY_DRAWS = {
    "bernoulli(0.3)": lambda t: t.bernoulli_(0.3),
    "bernoulli(0)": lambda t: t.bernoulli_(0.0),
    "bernoulli(1)": lambda t: t.bernoulli_(1.0),
    "geometric": lambda t: t.geometric_(0.2),
    "random": lambda t: t.random_(),
    "random(to)": lambda t: t.random_(100),
    "random(from, to)": lambda t: t.random_(3, 90),
    "random(from)": lambda t: t.random_(2, None),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FLOAT_DRAWS | ANY_DRAWS)
def test_in_place_floating(name, dtype, layout):
    fill = (FLOAT_DRAWS | ANY_DRAWS)[name]
    for shape in SHAPES:
        assert_same(lambda device: fill(LAYOUTS[layout](shape, dtype, device)))


@pytest.mark.parametrize("dtype", [*INTS, torch.bool], ids=str)
@pytest.mark.parametrize("name", ANY_DRAWS)
def test_in_place_integers(name, dtype):
    if dtype == torch.bool and name not in ("bernoulli(0.3)", "bernoulli(0)", "bernoulli(1)", "random"):
        with pytest.raises((RuntimeError, NotImplementedError)) as native:
            ANY_DRAWS[name](torch.empty(9, dtype=dtype))
        with pytest.raises(native.type, match=r"(?s).*") as ours:
            ANY_DRAWS[name](torch.empty(9, dtype=dtype, device="minitorch"))
        assert str(ours.value) == str(native.value)
        return
    for layout in LAYOUTS.values():
        assert_same(lambda device: ANY_DRAWS[name](layout((40, 9), dtype, device)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_full_range(dtype):
    assert_same(lambda device: torch.empty(99, dtype=dtype, device=device).random_(-(2**63), None))


def test_wide_range():
    assert_same(lambda device: torch.empty(99, dtype=torch.int64, device=device).random_(-5, 2**40))
    assert_same(lambda device: torch.empty(99, dtype=torch.int64, device=device).random_(2**28 - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.int32], ids=str)
@pytest.mark.parametrize("p_dtype", FLOATS, ids=str)
def test_bernoulli_tensor(dtype, p_dtype):
    p = torch.linspace(0, 1, 60, dtype=torch.float64).to(p_dtype).reshape(6, 10)
    assert_same(lambda device: torch.empty(6, 10, dtype=dtype, device=device).bernoulli_(p.to(device)))
    assert_same(lambda device: torch.empty(10, 6, dtype=dtype, device=device).t().bernoulli_(p.to(device)))
    assert_same(lambda device: torch.empty(4, 6, 10, dtype=dtype, device=device).bernoulli_(p.to(device)))
    assert_same(lambda device: torch.bernoulli(p.to(device)))
    assert_same(lambda device: torch.bernoulli(torch.zeros(7, 3, dtype=p_dtype, device=device), 0.4))


COMPOSITES = {
    "rand": lambda d: torch.rand(37, 5, device=d),
    "randn": lambda d: torch.randn(37, 5, device=d),
    "randn complex": lambda d: torch.randn(37, 5, dtype=torch.complex64, device=d),
    "randn small": lambda d: torch.randn(3, device=d),
    "rand_like": lambda d: torch.rand_like(torch.empty(5, 6, device=d).t()),
    "randn_like": lambda d: torch.randn_like(torch.empty(5, 6, device=d).t()),
    "randint": lambda d: torch.randint(10, (50,), device=d),
    "randint low": lambda d: torch.randint(-4, 9, (50,), dtype=torch.int32, device=d),
    "randint_like": lambda d: torch.randint_like(torch.empty(50, device=d), 3, 9),
    "normal": lambda d: torch.normal(1.0, 2.0, (40,), device=d),
    "randperm": lambda d: torch.randperm(1000, device=d),
    "randperm int32": lambda d: torch.randperm(77, dtype=torch.int32, device=d),
    "randperm float": lambda d: torch.randperm(77, dtype=torch.float32, device=d),
    "randperm 0": lambda d: torch.randperm(0, device=d),
    "randperm strided": lambda d: torch.randperm(20, out=torch.empty(40, dtype=torch.int64, device=d)[::2]),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites(name):
    assert_same(COMPOSITES[name])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_multinomial_with_replacement(dtype):
    weights = torch.rand(4, 9).to(dtype)
    if NATIVE == "cuda" and dtype.itemsize == 2:
        # Native CUDA rounds every running sum to 16 bits, so its draws are not from the weights that it was given.
        draws = torch.multinomial(weights.to("minitorch"), 100_000, replacement=True).cpu()
        for row, w in zip(draws, weights.double(), strict=True):
            torch.testing.assert_close(row.bincount(minlength=9) / 100_000, (w / w.sum()).float(), rtol=0, atol=0.01)
        return
    assert_same(lambda device: torch.multinomial(weights.to(device), 30, replacement=True))
    assert_same(lambda device: torch.multinomial(weights[0].to(device), 30, replacement=True))


@pytest.mark.parametrize("weights", [(0.5, -1.0, 0.5), (1.0, math.inf), (math.nan, 1.0), (0.0, 0.0), (-math.inf, 1.0)])
def test_multinomial_of_impossible_weights(weights):
    check_error(lambda w: torch.multinomial(w, 3, replacement=True), torch.tensor(weights))
    rows = torch.tensor([[1.0] * len(weights), weights])
    check_error(lambda w: torch.multinomial(w, 3, replacement=True), rows)


def test_multinomial_without_replacement():
    weights = torch.rand(4, 9)
    assert_same(lambda device: torch.multinomial(weights.to(device), 5))
    assert_same(lambda device: torch.multinomial(weights.to(device), 1))
    with pytest.raises(RuntimeError, match="invalid multinomial distribution"):
        torch.multinomial(torch.zeros(3, device="minitorch"), 2)
        torch.minitorch.synchronize()


def test_init_functions():
    def weights(init):
        def make(device):
            w = torch.empty(20, 30, device=device)
            init(w)
            return w

        return make

    init = torch.nn.init
    for f in (init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_, init.normal_):
        assert_same(weights(f))


@pytest.mark.parametrize(
    "fill",
    [
        lambda t: t.normal_(0, -1),
        lambda t: t.uniform_(3, 2),
        lambda t: t.bernoulli_(1.5),
        lambda t: t.exponential_(-1),
        lambda t: t.geometric_(1.0),
        lambda t: t.cauchy_(0, 0),
        lambda t: t.log_normal_(0, 0),
        lambda t: t.random_(4, 4),
        lambda t: t.to(torch.int64).normal_(),
        lambda t: t.to(torch.int64).uniform_(),
        lambda t: t.to(torch.int64).exponential_(),
        lambda t: t.to(torch.int64).cauchy_(),
        lambda t: t.to(torch.uint8).random_(0, 1000),
    ],
)
def test_errors(fill):
    with pytest.raises(Exception) as native:
        fill(torch.zeros(20))
    with pytest.raises(native.type) as ours:
        fill(torch.zeros(20, device="minitorch"))
    assert str(ours.value) == str(native.value)


def test_generator_object():
    g = torch.Generator(device="minitorch")
    assert g.device.type == "minitorch"
    assert g.initial_seed() == torch.Generator().initial_seed()
    g.manual_seed(3)
    native = torch.Generator(NATIVE).manual_seed(3)
    a = torch.randn(5, generator=native, device=NATIVE)
    assert torch.equal(torch.randn(5, generator=g, device="minitorch").cpu(), a.cpu())
    if NATIVE == "cpu":
        assert torch.equal(g.get_state(), native.get_state())  # the same bytes, cached normal included
    twin = g.clone_state() if hasattr(g, "clone_state") else copy.copy(g)
    state = g.get_state()
    first = torch.rand(40, generator=g, device="minitorch").cpu()
    g.set_state(state)
    assert torch.equal(torch.rand(40, generator=g, device="minitorch").cpu(), first)
    assert torch.equal(torch.rand(40, generator=twin, device="minitorch").cpu(), first)
    g.seed()
    assert g.initial_seed() != 3


def test_default_generator_is_our_own():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    ours = torch.rand(3, device="minitorch")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.rand(3, device=NATIVE).cpu(), ours.cpu())


def test_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'minitorch' device type for generator but found 'cpu'"):
        torch.rand(3, device="minitorch", generator=None).uniform_(generator=torch.Generator())


def test_rng_state_functions():
    torch.manual_seed(1)
    state = torch.minitorch.get_rng_state()
    if NATIVE == "cpu":
        assert torch.equal(state, torch.get_rng_state())
    a = torch.rand(3, device="minitorch").cpu()
    torch.minitorch.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="minitorch").cpu(), a)
    assert torch.minitorch.initial_seed() == 1
    with torch.random.fork_rng(devices=[0], device_type="minitorch"):
        torch.rand(9, device="minitorch")
    torch.minitorch.set_rng_state(state)
    with torch.random.fork_rng(devices=[0], device_type="minitorch"):
        torch.minitorch.manual_seed(99)
        torch.rand(9, device="minitorch")
    assert torch.equal(torch.rand(3, device="minitorch").cpu(), a)
    with pytest.raises((RuntimeError, TypeError)):
        torch.minitorch.set_rng_state(torch.zeros(3, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout_same_mask(dtype, p):
    x = torch.linspace(-2, 2, 7 * 300, dtype=torch.float64).to(dtype).reshape(7, 300)
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    for layout in (lambda t: t, lambda t: t.t(), lambda t: t[:, ::3], lambda t: t[:1].expand(5, -1)):
        assert_same(lambda device: torch.nn.functional.dropout(layout(x.to(device)), p))
    with torch.inference_mode():
        assert_same(lambda device: torch.nn.functional.dropout(x.to(device), p))


def test_native_dropout():
    for size in ((20, 10), (33,), (700, 3000)):
        x = torch.randn(size)
        torch.manual_seed(3)
        out, mask = torch.native_dropout(x.to(NATIVE), 0.3, True)
        ours, our_mask = torch.native_dropout(x.to("minitorch"), 0.3, True)
        assert torch.equal(our_mask.cpu(), mask.cpu())
        assert torch.equal(ours.cpu(), out.cpu())


def test_generators_are_copied_and_pickled():
    g = torch.Generator("minitorch").manual_seed(5)
    torch.randn(3, generator=g, device="minitorch")  # leaves a normal sample behind
    copies = [copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()]
    expected = torch.randn(7, generator=g, device="minitorch")
    for other in copies:
        assert other.device == g.device and other.initial_seed() == 5 and other is not g
        assert torch.equal(torch.randn(7, generator=other, device="minitorch"), expected)
    if NATIVE == "cuda":  # Philox's place in its sequence can be set
        g.set_offset(8)
        assert g.get_offset() == 8
        return
    with pytest.raises(RuntimeError, match="does not use offset"):
        g.set_offset(8)


def test_a_generator_needs_a_device_that_exists():
    for absent in ("minitorch:77", torch.device("minitorch", 78)):
        with pytest.raises(RuntimeError, match=r"invalid device ordinal: minitorch:7[78] was asked for"):
            torch.Generator(absent)
