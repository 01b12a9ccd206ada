"""The caching allocator as Python sees it: figures, limits, running out and recovering, poison and canaries."""

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch

import minitorch_backend
from tests.python.twin import ASYNCHRONOUS

mt = torch.minitorch
MiB = 1 << 20
CANARIES = 128 if minitorch_backend._C.poison() else 0  # bytes that every block grows by


def block(size: int) -> int:
    """Bytes of the block that a request gets, for sizes up to 1 KiB and above 1 MiB."""
    step = 64 if size + CANARIES <= 1024 else 4096
    return -(-(size + CANARIES) // step) * step


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a fresh process, because the variables are read once."""
    return subprocess.run(
        [sys.executable, "-c", "import torch, minitorch_backend\nmt = torch.minitorch\n" + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    mt.empty_cache()
    mt.reset_peak_memory_stats()
    yield
    mt.set_per_process_memory_fraction(1.0)


def test_figures_follow_tensors():
    before = mt.memory_allocated()
    x = torch.empty(3 * MiB, dtype=torch.uint8, device="minitorch")
    y = torch.empty(10, device="minitorch")
    assert mt.memory_allocated() - before == block(3 * MiB) + block(40)
    assert mt.max_memory_allocated() >= mt.memory_allocated()
    assert mt.memory_reserved() >= mt.memory_allocated()
    view = x[5:]
    del x
    assert mt.memory_allocated() - before == block(3 * MiB) + block(40)
    del view, y
    assert mt.memory_allocated() == before
    assert mt.max_memory_allocated() - before == block(3 * MiB) + block(40)
    mt.reset_peak_memory_stats()
    assert mt.max_memory_allocated() == before
    reserved = mt.memory_reserved()
    mt.empty_cache()
    assert mt.memory_reserved() < reserved
    mt.reset_peak_memory_stats()
    assert mt.max_memory_reserved() == mt.memory_reserved()


def test_keys_are_pytorchs_and_agree_with_accelerator():
    x = torch.empty(100, device="minitorch")
    stats = mt.memory_stats()
    generic = torch.accelerator.memory_stats()
    memory = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
    for figure in ("allocation", "segment", "active", "inactive_split", *memory):
        for pool in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                key = f"{figure}.{pool}.{metric}"
                assert stats[key] >= 0
                assert generic.get(key, stats[key]) == stats[key]
    for counter in ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]:
        assert generic[counter] == stats[counter]
    assert torch.accelerator.memory_allocated() == mt.memory_allocated() >= x.nbytes
    assert torch.accelerator.max_memory_reserved() == mt.max_memory_reserved()
    mt.reset_accumulated_memory_stats()
    assert mt.memory_stats()["allocated_bytes.all.allocated"] == 0
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total == mt.mem_get_info()[1]


def test_statistics_as_nested_dictionaries():
    flat, nested = mt.memory_stats(), mt.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"].keys() == {"current", "peak", "allocated", "freed"}

    def leaves(value, path=()):
        if not isinstance(value, dict):
            return {".".join(path): value}
        return {k: v for name, inner in value.items() for k, v in leaves(inner, (*path, name)).items()}

    assert leaves(nested) == flat


def test_names_of_old():
    for old, new in [("memory_cached", mt.memory_reserved), ("max_memory_cached", mt.max_memory_reserved)]:
        with pytest.warns(FutureWarning, match=new.__name__):
            assert getattr(mt, old)() == new()
    for old in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        x = torch.empty(MiB, device="minitorch")
        del x
        assert mt.max_memory_allocated() > mt.memory_allocated()
        with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
            getattr(mt, old)()
        assert mt.max_memory_allocated() == mt.memory_allocated()


@pytest.mark.parametrize("abbreviated", [False, True])
def test_summary_is_a_table(abbreviated):
    lines = mt.memory_summary(abbreviated=abbreviated).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert any("Allocated memory" in line for line in lines)
    assert any("large pool" in line for line in lines) != abbreviated


def test_memory_is_reused_at_once():
    x = torch.empty(5 * MiB, dtype=torch.uint8, device="minitorch")
    where = x.data_ptr()
    assert where % 64 == 0
    del x
    y = torch.empty(5 * MiB, dtype=torch.uint8, device="minitorch")
    assert y.data_ptr() == where


def test_running_out_says_how_much_and_the_process_recovers():
    mt.set_per_process_memory_fraction(64 * MiB / mt.mem_get_info()[1])
    assert mt.get_per_process_memory_fraction() < 0.5
    assert mt.mem_get_info()[0] <= 64 * MiB
    held = torch.empty(40 * MiB, dtype=torch.uint8, device="minitorch")
    ooms = mt.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as e:
        torch.empty(100 * MiB, dtype=torch.uint8, device="minitorch")
    text = str(e.value)
    assert "Tried to allocate 100.00 MiB" in text and "may take 64.00 MiB" in text and "It holds 40.0" in text
    assert mt.memory_stats()["num_ooms"] == ooms + 1
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(30 * MiB, dtype=torch.uint8).to("minitorch")
    assert held.fill_(3)[-1].item() == 3
    del held
    x = torch.ones(50 * MiB, dtype=torch.uint8).to("minitorch")
    assert x[-1].item() == 1
    del x, e
    mt.set_per_process_memory_fraction(1.0)
    assert torch.empty(100 * MiB, dtype=torch.uint8, device="minitorch").numel() == 100 * MiB


def test_more_than_there_is():
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1024\.00 TiB"):
        torch.empty(1 << 50, dtype=torch.uint8, device="minitorch")
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(1 << 62, 1 << 10, device="minitorch")


@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, float("nan")])
def test_fractions_outside_the_range(fraction):
    with pytest.raises(ValueError, match="Invalid fraction"):
        mt.set_per_process_memory_fraction(fraction)
    with pytest.raises(TypeError, match="fraction"):
        mt.set_per_process_memory_fraction("half")


def test_limit_from_the_environment():
    code = """
x = torch.empty(8 << 20, dtype=torch.uint8, device="minitorch")
try:
    torch.empty(30 << 20, dtype=torch.uint8, device="minitorch")
except torch.OutOfMemoryError as e:
    print(e)
print(torch.ones(3).to("minitorch").add(1).tolist())
"""
    done = run(code, MINITORCH_MEMORY_LIMIT="32M")
    assert "may take 32.00 MiB" in done.stdout and "[2.0, 2.0, 2.0]" in done.stdout, done.stderr


def test_a_limit_below_the_smallest_piece_explains_itself():
    code = """
try:
    torch.empty(10, device="minitorch")
except torch.OutOfMemoryError as e:
    print(e)
"""
    text = run(code, MINITORCH_MEMORY_LIMIT="1K").stdout
    assert "Tried to allocate 40 bytes" in text and "may take 1.00 KiB" in text and "It holds 0 bytes" in text, text
    assert "Memory is taken from the system in pieces of 64.00 KiB at least" in text


def test_small_tensors_fit_beside_a_large_one_that_took_the_limit():
    code = """
x = torch.ones(4 << 20, dtype=torch.uint8, device="minitorch")
parts = [torch.full((n,), 2.0, device="minitorch") for n in (1, 1000, 100000)]
print(x.sum().item() >> 20, [p.sum().item() for p in parts], mt.memory_stats()["num_ooms"])
"""
    done = run(code, MINITORCH_MEMORY_LIMIT="16M")
    assert done.stdout == "4 [2.0, 2000.0, 200000.0] 0\n", done.stderr


def test_steps_of_varying_size_do_not_pile_up():
    """Free memory with pages stays bounded by what was held at most, whatever the sizes."""
    code = """
import resource
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
start = rss()
for step in range(60):
    a = torch.empty((20 + step) << 20, dtype=torch.uint8, device="minitorch").fill_(1)
    b = torch.empty((90 - step) << 20, dtype=torch.uint8, device="minitorch").fill_(1)
    del a, b
print((rss() - start) >> 20, mt.max_memory_allocated() >> 20)
"""
    done = run(code)
    grown, peak = map(int, done.stdout.split())
    assert peak == 110
    assert grown <= peak + peak // 16 + 8 + 6, done.stdout


def test_threads_allocate_and_free_for_each_other():
    tensors: list = []
    lock = threading.Lock()
    wrong = []

    def work(mark: int) -> None:
        for i in range(300):
            x = torch.full((1 + i * 37 % 5000,), float(mark)).to("minitorch")
            with lock:
                tensors.append((x, mark))
                other, expected = tensors.pop(0) if len(tensors) > 8 else (None, 0)
            if other is not None and other.cpu().ne(expected).any():
                wrong.append(expected)

    before = mt.memory_allocated()
    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    tensors.clear()
    assert not wrong
    assert mt.memory_allocated() == before


def test_profiler_sees_memory():
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(MiB + 4096, dtype=torch.uint8, device="minitorch")
        del x
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    assert sorted(e.nbytes() for e in events) == [-block(MiB + 4096), block(MiB + 4096)]


def test_poison_fills_fresh_memory():
    done = run(
        """
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    assert torch.empty(1000, dtype=dtype, device="minitorch").cpu().isnan().all()
assert torch.empty(10, dtype=torch.int32, device="minitorch").tolist() == [-1] * 10
x = torch.ones(100).to("minitorch")
assert (x + 1).tolist() == [2.0] * 100
mt.synchronize()
print("ok")
""",
        MINITORCH_POISON="1",
    )
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(
    "trigger", ["mt.synchronize()", "torch.empty(5, device='minitorch')", "torch.accelerator.synchronize()"]
)
def test_a_write_past_the_end_is_reported_with_the_operator_that_made_the_block(trigger):
    done = run(
        f"""
import ctypes
x = torch.empty(10, dtype=torch.uint8, device="minitorch")
end = x.data_ptr() + 10
if minitorch_backend._C.backend_name() == "cpu":
    ctypes.memset(end, 0, 3)
else:
    ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2(ctypes.c_uint64(end), 0, ctypes.c_size_t(3))
del x
try:
    {trigger}
except RuntimeError as e:
    print(e)
mt.synchronize()
print("goes on")
""",
        MINITORCH_POISON="1",
    )
    assert "3 of the 64 bytes after a block of 10 bytes were overwritten" in done.stdout, done.stderr
    assert "made by aten::empty" in done.stdout
    assert done.stdout.endswith("goes on\n")


def test_poison_is_off_unless_asked_for():
    assert minitorch_backend._C.poison() == (os.environ.get("MINITORCH_POISON") == "1")


def test_a_tensor_knows_its_block():
    x = torch.empty(3, 5, device="minitorch")
    described = mt.memory_block(x.t()[1:])
    assert described["requested_size"] == 60 and described["size"] == block(60)
    assert described["stream_id"] == mt.current_stream().stream_id
    assert described["made_by"] == ("aten::empty" if CANARIES else "")
    assert mt.memory_block(torch.empty(0, device="minitorch")) is None
    assert mt.memory_block(torch.empty(3)) is None


def test_deterministic_mode_fills_fresh_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(5, device="minitorch").cpu().isnan().all()
        assert torch.empty_strided((2, 2), (1, 2), dtype=torch.int16, device="minitorch").tolist() == [[32767] * 2] * 2
        grown = torch.zeros(2, device="minitorch").resize_(2, 3).cpu().view(-1)
        assert (grown[:2] == 0).all() and grown[2:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU kernels' scratch memory")
def test_scratch_memory_of_kernels_counts_while_they_run():
    x = torch.arange(MiB, device="minitorch").flip(0)  # sorted with two buffers of 8 bytes an element
    mt.reset_peak_memory_stats()
    before = mt.memory_allocated()
    x.sort()
    assert mt.memory_allocated() == before
    assert mt.max_memory_allocated() - before >= (16 + 16) * MiB
    mapped = mt.memory_stats()["num_device_alloc"]
    x.sort()
    assert mt.memory_stats()["num_device_alloc"] == mapped


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU kernels' scratch memory")
def test_scratch_memory_is_within_the_limit():
    code = """
x = torch.arange(1 << 19, device="minitorch").flip(0)
values, indices = torch.empty_like(x), torch.empty_like(x)
try:
    torch.sort(x, out=(values, indices))
except torch.OutOfMemoryError as e:
    print("Tried to allocate 8.00 MiB" in str(e))
print(mt.memory_allocated() >> 20, x[:4096].sort().values[0].item())
"""
    done = run(code, MINITORCH_MEMORY_LIMIT="16M")
    assert done.stdout == "True\n12 520192\n", (done.stdout, done.stderr)


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU kernels' scratch memory")
def test_scratch_memory_is_checked_and_read_only_where_it_was_written():
    code = """
torch.manual_seed(0)
x = torch.randn(300, 700, dtype=torch.float64)
square = x[:, :300] + 20 * torch.eye(300, dtype=torch.float64)
indices = torch.randint(0, 40000, (90000,))
work = {
    "sort": lambda d: (x * 1e9).long().to(d).flatten().sort(),
    "unique": lambda d: x.to(d).round().unique(return_counts=True),
    "kthvalue": lambda d: x.to(d).flatten().kthvalue(9),
    "histc": lambda d: x.float().to(d).histc(50000, -4, 4),
    "bincount": lambda d: indices.to(d).bincount(),
    "fft": lambda d: torch.view_as_real(torch.fft.fft(x.to(d).flatten()[: 2 * 65537])),
    "solve": lambda d: torch.linalg.solve(square.to(d), x.to(d)),
    "qr": lambda d: torch.linalg.qr(x.to(d)).R.abs(),
    "embedding": lambda d: torch.nn.functional.embedding(indices.to(d), x.to(d).view(-1, 5)[:40000]),
    "resize": lambda d: torch.nn.functional.interpolate(x.to(d)[None, None], size=(900, 40000), mode="bicubic"),
}
for name, f in work.items():
    torch.testing.assert_close(f("minitorch"), f("cpu"), check_device=False)
mt.synchronize()
"""
    done = run(code, MINITORCH_POISON="1", MINITORCH_FALLBACK="error")
    assert done.returncode == 0, done.stderr[-2000:]
