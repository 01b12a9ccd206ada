"""torch.minitorch's devices, torch.accelerator's view of them, and what tensors, modules and storages gain."""

import subprocess
import sys
import threading

import pytest
import torch

import minitorch_backend  # noqa: F401

mt = torch.minitorch
INVALID = r"invalid device ordinal: minitorch:77 was asked for, but \d+ devices? (is|are) present"


def test_the_device_is_there_and_initialised():
    assert mt.is_available() and mt.is_initialized()
    mt.init()
    assert mt.device_count() >= 1
    assert mt.current_device() == 0


@pytest.mark.parametrize("package", ["torch", "minitorch_backend"])
def test_one_import_is_enough(package):
    code = f"import {package}, sys; torch = sys.modules['torch']; assert torch.ones(2).to('minitorch').is_minitorch"
    if package == "torch":
        pytest.importorskip("importlib.metadata")
        from importlib.metadata import entry_points

        if not entry_points(group="torch.backends", name="minitorch"):
            pytest.skip("the package is not installed, so its entry point does not exist")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=".")


# What torch.cuda and torch.xpu have that this device does not, by the reason.
ELSEWHERE = {
    "graphs of recorded work": "CUDAGraph XPUGraph graph graphs graph_pool_handle make_graphed_callables",
    "other allocators and pools": "CUDAPluggableAllocator XPUPluggableAllocator MemPool use_mem_pool "
    "change_current_allocator caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
    "caching_allocator_enable",
    "figures of the driver's tools": "clock_rate device_memory_used list_gpu_processes memory_usage power_draw "
    "temperature utilization",
    "figures of pinned memory": "host_memory_stats host_memory_stats_as_nested_dict reset_peak_host_memory_stats "
    "reset_accumulated_host_memory_stats",
    "vendor libraries": "cudart cudaStatus CudaError check_error current_blas_handle current_solver_handle has_magma "
    "has_half nccl nvtx jiterator tunable sparse profiler GreenContext get_arch_list get_gencode_flags",
    "made lazily": "DeferredCudaCallError",
    "autocast, under torch.amp": "amp",
    "warnings of synchronisation": "get_sync_debug_mode set_sync_debug_mode",
}


def test_pytorch_learns_of_the_first_use():
    """Else it takes the device for unused, and torch.accelerator.synchronize() does not wait for it."""
    code = (
        "import torch; from minitorch_backend import device; begun = []; device._lazy_init = lambda: begun.append(1); "
        "torch.ones(2, device='minitorch'); torch.accelerator.synchronize(); "
        "torch.ones(2, device='minitorch'); assert begun == [1], begun"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=".")


@pytest.mark.parametrize("module", [torch.cuda, torch.xpu])
def test_scripts_find_what_other_devices_have(module):
    kinds = ("Tensor", "Storage")  # the typed classes of old
    missing = {n for n in module.__all__ if not hasattr(mt, n) and not n.endswith(kinds)}
    assert missing <= set(" ".join(ELSEWHERE.values()).split())
    assert mt.OutOfMemoryError is torch.OutOfMemoryError and mt.AcceleratorError is torch.AcceleratorError
    assert not mt.is_current_stream_capturing() and mt.ipc_collect() is None
    assert mt.get_allocator_backend() == "native"
    if mt.get_device_properties().backend == "cpu":
        assert not mt.is_tf32_supported()
        with pytest.raises(RuntimeError):
            mt.get_stream_from_external(1)


def test_inductor_is_told_that_there_is_no_code_for_the_device():
    for function in (lambda x: x.sin() + 1, lambda x: torch.nn.functional.layer_norm(x, (4,))):
        with pytest.raises(Exception, match=r"generates no code for minitorch.*aot_eager"):
            torch.compile(function)(torch.ones(2, 4, device="minitorch"))
        compiled = torch.compile(function, backend="aot_eager")
        torch.testing.assert_close(compiled(torch.ones(2, 4, device="minitorch")).cpu(), function(torch.ones(2, 4)))
    with pytest.raises(AttributeError, match="no attribute 'scheduling'"):
        mt.scheduling  # noqa: B018


def test_accelerator_is_this_device():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("minitorch")
    assert torch.accelerator.device_count() == mt.device_count()
    assert torch.accelerator.current_device_index() == mt.current_device()
    torch.accelerator.synchronize()
    with torch.accelerator.device_index(0):
        assert torch.accelerator.current_device_index() == 0
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool} <= dtypes
    assert torch.float8_e4m3fn not in dtypes


def test_device_can_be_named_in_every_way():
    for device in (0, "minitorch", "minitorch:0", torch.device("minitorch"), torch.device("minitorch", 0)):
        mt.set_device(device)
        mt.synchronize(device)
        with mt.device(device) as entered:
            assert mt.current_device() == 0
            assert entered.idx == 0
        assert torch.empty(2, device=device if not isinstance(device, int) else f"minitorch:{device}").get_device() == 0
    for nothing in (None, -1):
        with mt.device(nothing):
            assert mt.current_device() == 0
    mt.set_device(-1)
    with mt.device_of(torch.empty(1, device="minitorch")), mt.device_of(torch.empty(1)):
        assert mt.current_device() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(3, device="minitorch:77"),
        lambda: torch.empty(0, device="minitorch:77"),
        lambda: torch.empty_strided((2, 2), (1, 2), device="minitorch:77"),
        lambda: torch.ones(3).to("minitorch:77"),
        lambda: torch.ones(3).minitorch(77),
        lambda: torch.empty(3, device="minitorch").to("minitorch:77"),
        lambda: torch.nn.Linear(2, 2).to("minitorch:77"),
        lambda: mt.set_device(77),
        lambda: mt.device(77).__enter__(),
        lambda: mt.synchronize(77),
        lambda: mt.get_device_name("minitorch:77"),
        lambda: mt.memory_allocated(77),
        lambda: mt.Stream(77),
        lambda: mt.current_stream(77),
        lambda: mt.default_stream(77),
        lambda: mt.get_rng_state(77),
        lambda: mt.can_device_access_peer(0, 77),
        lambda: torch.accelerator.set_device_index(77),
        lambda: torch.accelerator.current_stream(77),
        lambda: torch.randn(2, device="minitorch:77"),
        lambda: torch.Generator("minitorch:77"),
        lambda: torch.Stream("minitorch:77"),
        lambda: mt.set_per_process_memory_fraction(0.5, 77),
        lambda: torch.UntypedStorage(8, device="minitorch:77"),
    ],
)
def test_an_unknown_index_is_an_error_that_names_the_count(use):
    with pytest.raises(RuntimeError, match=INVALID):
        use()
    assert mt.current_device() == 0
    assert torch.ones(2).to("minitorch").device.index == 0


@pytest.mark.parametrize("use", [mt.get_device_properties, mt.synchronize, mt.memory_stats, mt.get_rng_state])
def test_of_negative_indices_only_the_current_device_has_one(use):
    use(-1)
    with pytest.raises(RuntimeError, match="invalid device ordinal: minitorch:-2 was asked for"):
        use(-2)


@pytest.mark.parametrize("device", ["cpu", torch.device("meta")])
def test_another_devices_name_is_refused(device):
    with pytest.raises(ValueError, match="Expected a minitorch device, but got"):
        mt.synchronize(device)
    with pytest.raises(TypeError, match=r"Expected a torch\.device"):
        mt.synchronize(1.5)


def test_properties():
    p = mt.get_device_properties()
    assert p.name == mt.get_device_name() and p.name
    assert p.backend in ("cpu", "cuda") and p.isa in repr(p)
    assert p.total_memory == mt.mem_get_info()[1]
    assert p.multi_processor_count >= 1
    assert mt.get_device_capability() == (p.major, p.minor)
    assert mt.is_bf16_supported()
    assert torch.bfloat16 in mt.get_amp_supported_dtype()
    assert not mt.can_device_access_peer(0, 0)
    assert not mt._is_in_bad_fork()


def test_generated_methods():
    x = torch.arange(6.0)
    d = x.minitorch()
    assert d.is_minitorch and not x.is_minitorch
    assert torch.equal(d.cpu(), x) and torch.equal(x.minitorch(0).cpu(), x)
    module = torch.nn.Linear(2, 2).minitorch()
    assert module.weight.is_minitorch
    storage = x.untyped_storage().minitorch()
    assert storage.is_minitorch and bytes(storage.cpu()) == bytes(x.untyped_storage())
    packed = torch.nn.utils.rnn.PackedSequence(x[:3], torch.tensor([1, 1, 1]))
    assert packed.minitorch().data.is_minitorch
    assert d.type() == "torch.minitorch.FloatTensor"
    assert x.type("torch.minitorch.FloatTensor").is_minitorch


def test_default_device_and_context():
    with torch.device("minitorch"):
        assert torch.empty(2).is_minitorch
    torch.set_default_device("minitorch")
    try:
        assert torch.empty(2).is_minitorch
    finally:
        torch.set_default_device(None)


def test_threads_have_their_own_current_device_and_stream():
    seen = []
    stream = mt.Stream()
    with mt.stream(stream):
        thread = threading.Thread(target=lambda: seen.append((mt.current_device(), mt.current_stream())))
        thread.start()
        thread.join()
    assert seen == [(0, mt.default_stream())]


def test_generators_follow_torchs_seeding():
    torch.manual_seed(11)
    assert mt.initial_seed() == 11
    state = mt.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    mt.manual_seed(12)
    assert mt.initial_seed() == 12
    assert not torch.equal(mt.get_rng_state(), state)
    mt.set_rng_state(state)
    assert torch.equal(mt.get_rng_state_all()[0], state)
    mt.set_rng_state_all([state] * mt.device_count())
    mt.manual_seed_all(13)
    assert all(g.initial_seed() == 13 for g in mt.default_generators)
    mt.seed()
    mt.seed_all()
    with torch.random.fork_rng(device_type="minitorch"):
        before = mt.get_rng_state()
        mt.manual_seed(99)
    assert torch.equal(mt.get_rng_state(), before)
    assert torch.Generator("minitorch").device.type == "minitorch"


def test_autocast_accepts_the_device():
    for dtype in mt.get_amp_supported_dtype():
        with torch.autocast("minitorch", dtype=dtype):
            assert torch.is_autocast_enabled("minitorch")
            assert torch.get_autocast_dtype("minitorch") == dtype
    assert not torch.is_autocast_enabled("minitorch")
