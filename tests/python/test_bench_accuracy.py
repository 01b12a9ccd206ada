"""The benchmark's judgement of results: what rounding explains, what it does not, and what is not finite."""

import math

import pytest
import torch

from minitorch_backend.bench import accuracy, case

INF, NAN = math.inf, math.nan
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, *HALVES)


def numbers(count=2**16, dtype=torch.float32, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rounded(dtype, count=2**16):
    """A rival's result that is rounded once, and the reference."""
    truth = numbers(count, torch.float64).exp()
    return truth.to(dtype), truth


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_rounding_explains_is_ok(dtype):
    rival, truth = rounded(dtype)
    assert accuracy.compare([rival], [rival.clone()], [truth]).verdict == "ok"
    steps = torch.nextafter(rival, torch.full_like(rival, INF))  # a unit off, each of them
    assert accuracy.compare([rival], [steps], [truth]).verdict == "less accurate"


@pytest.mark.parametrize("dtype", FLOATS)
def test_half_a_result_of_zeros_is_wrong(dtype):
    rival, truth = rounded(dtype)
    ours = rival.clone()
    ours[len(ours) // 2 :] = 0
    found = accuracy.compare([rival], [ours], [truth])
    assert found.verdict == "wrong" and 0.4 < found.ours < 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("left", [1, 7, 200])
def test_a_tail_that_is_left_out_is_wrong(dtype, left):
    """... however little of the whole it is: its share in the norm is below a unit."""
    truth = numbers(2**22, torch.float64)
    truth[-left:] = 1.0 + truth[-left:].abs()
    rival = truth.to(dtype)
    ours = rival.clone()
    ours[-left:] = 0
    assert accuracy.compare([rival], [ours], [truth]).verdict == "wrong"
    assert accuracy.compare([rival], [ours], None).verdict == "wrong"


def test_one_element_in_a_million_integers_is_wrong():
    rival = torch.arange(2**21)
    ours = rival.clone()
    ours[-1] = 0
    for found in (accuracy.compare([rival], [ours], [rival]), accuracy.compare([rival], [ours], None)):
        assert found.verdict == "wrong"
    assert accuracy.compare([rival], [rival.clone()], [rival]).verdict == "ok"


def test_where_native_itself_is_far_off_ours_may_be_so_too():
    truth = numbers(2**16, torch.float64)
    noise = [1 + 0.02 * numbers(2**16, torch.float64, seed) for seed in (1, 2)]
    rival, alike = ((truth * factor).float() for factor in noise)
    assert accuracy.compare([rival], [alike], [truth]).verdict in ("ok", "less accurate")
    far = (truth * (1 + 0.1 * numbers(2**16, torch.float64, 3))).float()
    assert accuracy.compare([rival], [far], [truth]).verdict == "wrong"


def test_a_tensor_of_one_element_is_not_judged_by_native_s_luck():
    """... when the other tensors of the result say how far off native is."""
    truth = [numbers(2**12, torch.float64, seed) for seed in range(3)]
    off = [[(t * (1 + 0.01 * numbers(2**12, torch.float64, seed + s))).float() for s, t in enumerate(truth)]
           for seed in (10, 20)]  # fmt: skip
    loss = torch.tensor([2.0], dtype=torch.float64)
    rival, ours = [loss.float(), *off[0]], [(loss * 1.004).float(), *off[1]]
    assert accuracy.compare(rival, ours, [loss, *truth]).verdict == "less accurate"
    assert accuracy.compare(rival, [loss.float() * 1.5, *off[1]], [loss, *truth]).verdict == "wrong"
    assert accuracy.compare(rival[:1], ours[:1], [loss]).verdict == "wrong"


VALUES = [1.0, 2.0, 3.0]
# rival, ours, reference -> whether ours is right
INFINITIES = {
    "native overflows, ours is nonsense": ([INF, 2, 3], [INF, 9, 9], [1e39, 2, 3], False),
    "native overflows, ours too": ([INF, 2, 3], [INF, 2, 3], [1e30, 2, 3], True),
    "native overflows, ours is right": ([INF, 2, 3], [1e30, 2, 3], [1e30, 2, 3], True),
    "native overflows, ours has another sign": ([INF, 2, 3], [-INF, 2, 3], [1e30, 2, 3], False),
    "native overflows, ours is finite and wrong": ([INF, 2, 3], [7, 2, 3], [1e30, 2, 3], False),
    "infinite": ([INF, 2, 3], [INF, 2, 3], [INF, 2, 3], True),
    "another sign": ([INF, 2, 3], [-INF, 2, 3], [INF, 2, 3], False),
    "NaN for infinity": ([INF, 2, 3], [NAN, 2, 3], [INF, 2, 3], False),
    "finite for infinity": ([INF, 2, 3], [3e38, 2, 3], [INF, 2, 3], False),
    "NaN": ([NAN, 2, 3], [NAN, 2, 3], [NAN, 2, 3], True),
    "infinity for NaN": ([NAN, 2, 3], [INF, 2, 3], [NAN, 2, 3], False),
    "NaN for a number": (VALUES, [NAN, 2, 3], VALUES, False),
    "too large for the dtype": ([INF, 2, 3], [INF, 2, 3], [1e39, 2, 3], True),
    "native gives the largest number for it": ([3.4028234663852886e38, 2, 3], [INF, 2, 3], [1e39, 2, 3], True),
    "beside it a number is wrong": ([INF, 2, 3], [INF, 2, 4], [INF, 2, 3], False),
}


@pytest.mark.parametrize("name", INFINITIES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_what_is_not_finite_is_compared_exactly(name, kind):
    rival, ours, truth, right = INFINITIES[name]
    made = [torch.tensor(values, dtype=torch.float32) for values in (rival, ours)]
    made.append(torch.tensor(truth, dtype=torch.float64))
    if kind == "complex":
        made = [torch.complex(torch.ones_like(t), t) for t in made]
    assert accuracy.compare(*([t] for t in made)).verdict == ("ok" if right else "wrong")


def test_all_infinite_and_nothing():
    whole = torch.full((4,), INF)
    assert accuracy.compare([whole], [whole], [whole.double()]).verdict == "ok"
    assert accuracy.compare([whole[:0]], [whole[:0]], [whole[:0].double()]).verdict == "ok"
    assert accuracy.compare([], [], []).verdict == "ok"


CASES = {c.full_name: c for c in case.load() if "cpu" in c.backends}
STEPS = ("models/digits CNN training step", "models/char-GPT training step")


def broken(monkeypatch, name, fault):
    """The verdict on a case whose second side runs on native with a fault in it."""
    place, made = torch.device("cpu"), CASES[name]

    def run():
        return accuracy.results(made, place, lambda work: work, place)

    rival, reference = run(), accuracy.reference(made, place)
    assert accuracy.compare(rival, run(), reference).verdict == "ok"
    fault(monkeypatch)
    return accuracy.compare(rival, run(), reference).verdict


def no_steps(monkeypatch):
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        monkeypatch.setattr(kind, "step", lambda self: None)


def no_clipping(monkeypatch):
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda parameters, most: torch.tensor(1.0))


def zero_gradients(monkeypatch):
    backward = torch.Tensor.backward

    def run(self, *given, **options):
        backward(self * 0, *given, **options)

    monkeypatch.setattr(torch.Tensor, "backward", run)


def other_betas(monkeypatch):
    made = torch.optim.Adam.__init__
    monkeypatch.setattr(torch.optim.Adam, "__init__", lambda self, p, **o: made(self, p, betas=(0.8, 0.99), **o))


@pytest.mark.parametrize(
    "name,fault",
    [
        (STEPS[0], no_steps), (STEPS[1], no_steps), (STEPS[1], no_clipping), (STEPS[0], zero_gradients),
        (STEPS[1], zero_gradients), ("optimizers/Adam 384 f32", no_steps), ("optimizers/Adam 384 f32", other_betas),
        ("optimizers/clip_grad_norm_ 384 f32", no_clipping),
    ],
)  # fmt: skip
def test_a_training_step_is_compared_to_its_end(monkeypatch, name, fault):
    assert broken(monkeypatch, name, fault) == "wrong"


def test_what_is_compared_is_not_gathered_in_the_work():
    gathered = []
    later = case.Later(lambda: gathered.append(1) or torch.ones(2))
    work = lambda: (torch.zeros(1), later)  # noqa: E731
    result = work()
    assert not gathered and [t.tolist() for t in accuracy.tensors(result)] == [[0.0], [1.0, 1.0]] and gathered
