"""Saving, loading, pickling, copying and storages, across devices and where the device is absent."""

import copy
import io
import os
import pickle
import subprocess
import sys

import pytest
import torch

import minitorch_backend  # noqa: F401


def saved(obj, **kwargs):
    buffer = io.BytesIO()
    torch.save(obj, buffer, **kwargs)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("origin", ["cpu", "minitorch"])
@pytest.mark.parametrize("where", [None, "cpu", "minitorch", torch.device("minitorch", 0), {"minitorch:0": "cpu"}])
def test_save_and_load_both_ways(zipped, origin, where):
    x = torch.arange(12.0).reshape(3, 4).t()
    file = saved({"x": x.to(origin)}, _use_new_zipfile_serialization=zipped)
    loaded = torch.load(file, map_location=where)["x"]
    if where is None:
        expected = origin
    elif isinstance(where, dict):
        expected = "cpu"
    else:
        expected = torch.device(where).type
    assert loaded.device.type == expected
    assert loaded.stride() == x.stride()
    assert torch.equal(loaded.cpu(), x)


def test_loaded_tensors_share_what_they_shared():
    x = torch.arange(10.0).to("minitorch")
    a, b = torch.load(saved([x, x[2:5]]))
    a.add_(1)
    assert torch.equal(b.cpu(), torch.arange(10.0)[2:5] + 1)
    assert b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_dtypes_survive(dtype):
    x = torch.arange(5).to(dtype)
    y = torch.load(saved(x.to("minitorch")))
    assert y.dtype == dtype and y.is_minitorch and torch.equal(y.cpu(), x)


def test_modules_and_optimizers_survive():
    model = torch.nn.Linear(3, 2).to("minitorch")
    state = torch.load(saved(model.state_dict()), map_location="cpu")
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(state)
    assert torch.equal(other.weight, model.weight.cpu())
    model.load_state_dict(torch.nn.Linear(3, 2).state_dict())  # from CPU into ours
    assert model.weight.is_minitorch
    again = torch.load(saved(model), weights_only=False)
    assert torch.equal(again.weight.cpu(), model.weight.cpu()) and again.weight.requires_grad


def test_an_index_that_does_not_exist_is_torchs_own_error():
    with pytest.raises(RuntimeError, match=r"deserialize object on MINITORCH device 77 but .*device_count\(\) is \d"):
        torch.load(saved(torch.ones(2)), map_location="minitorch:77")


def test_a_file_from_here_without_the_device(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0).to("minitorch"), path)
    code = f"""
import torch
try:
    torch.load({str(path)!r})
except RuntimeError as e:
    print(e)
print(torch.load({str(path)!r}, map_location="cpu"))
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "don't know how to restore data location" in done.stdout and "minitorch" in done.stdout
    assert "tensor([0., 1., 2.])" in done.stdout


def test_pickle_and_copies():
    x = torch.arange(6.0).to("minitorch").requires_grad_()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert y.is_minitorch and y.requires_grad and torch.equal(y.cpu(), x.cpu())
    pair = copy.deepcopy([x.detach(), x.detach()[1:]])
    assert pair[0].untyped_storage().data_ptr() == pair[1].untyped_storage().data_ptr()
    assert pair[0].data_ptr() != x.data_ptr()
    stream = copy.copy(torch.device("minitorch:0"))
    assert pickle.loads(pickle.dumps(stream)) == stream
    parameter = copy.deepcopy(torch.nn.Parameter(x.detach()))
    assert isinstance(parameter, torch.nn.Parameter) and parameter.is_minitorch
    with torch.no_grad():
        x.backward(torch.ones(6).to("minitorch"))
    assert torch.equal(copy.deepcopy(x).grad.cpu(), torch.ones(6))


def test_numpy_and_lists():
    x = torch.arange(4.0).to("minitorch")
    assert x.tolist() == [0, 1, 2, 3]
    assert x.cpu().numpy().sum() == 6
    with pytest.raises(TypeError, match="can't convert minitorch:0 device type tensor to numpy"):
        x.numpy()
    assert torch.as_tensor([1, 2], device="minitorch").tolist() == [1, 2]


def test_storages():
    x = torch.arange(6, dtype=torch.uint8).to("minitorch")
    storage = x.untyped_storage()
    assert storage.device == x.device and storage.nbytes() == 6
    storage.resize_(10)
    assert storage.nbytes() == 10 and x.tolist() == [0, 1, 2, 3, 4, 5]
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(6)  # what FSDP does to free and to refill a parameter
    x.copy_(torch.arange(6, dtype=torch.uint8))
    clone = storage.clone()
    assert clone.device == x.device and clone.data_ptr() != storage.data_ptr()
    fresh = torch.UntypedStorage(6, device="minitorch")
    fresh.copy_(storage)
    y = torch.empty(0, dtype=torch.uint8, device="minitorch").set_(fresh)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    z = torch.empty(0, dtype=torch.uint8, device="minitorch").set_(fresh, 2, (2, 2), (2, 1))
    assert z.tolist() == [[2, 3], [4, 5]]
    y.resize_(3, 4)
    assert y.shape == (3, 4) and y.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]


def test_set_data_between_tensors_of_the_device():
    x = torch.ones(3).to("minitorch")
    alias = x.detach()
    x.data = torch.zeros(5).to("minitorch")
    assert x.shape == (5,) and alias.tolist() == [1, 1, 1]


def test_copy_on_write_clones_lazily():
    x = torch.ones(4).to("minitorch")
    y = torch._lazy_clone(x)
    y.add_(1)
    assert x.tolist() == [1] * 4 and y.tolist() == [2] * 4


def test_pinned_memory():
    x = torch.arange(5.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and torch.equal(pinned, x) and pinned.device.type == "cpu"
    assert pinned[2:].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()  # of torch.cuda's allocator where torch has CUDA
    moved = pinned.to("minitorch", non_blocking=True)
    assert torch.equal(moved.cpu(), x) and not moved.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        moved.pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device="minitorch", pin_memory=True)


def test_pinned_memory_is_given_back():
    torch.ones(5).pin_memory()
    torch.accelerator.empty_host_cache()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers):
    data = [(torch.full((1000,), float(i)), {"index": i}) for i in range(12)]
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, pin_memory=True, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    found = []
    for x, rest in loader:
        assert x.is_pinned() and rest["index"].is_pinned()
        moved = x.to("minitorch", non_blocking=True)
        assert not moved.is_pinned()
        found += (moved * 2)[:, -1].tolist()
    assert found == [2.0 * i for i in range(12)]


def a_step(model, optimizer, step):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(step)).to(model.weight.device)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def linear_and_optimizer(device):
    model = torch.nn.Linear(5, 3)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-1, 1, 15).view(3, 5))
        model.bias.zero_()
    model.to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


@pytest.mark.parametrize("origin", ["cpu", "minitorch"])
@pytest.mark.parametrize("target", ["cpu", "minitorch"])
def test_training_goes_on_from_a_checkpoint_on_another_device(origin, target):
    """Parameters, and an optimizer's state of tensors and numbers, moved by map_location."""
    model, optimizer = linear_and_optimizer(origin)
    for step in range(3):
        a_step(model, optimizer, step)
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = torch.load(file, map_location=target, weights_only=True)
    model, optimizer = linear_and_optimizer(target)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for step in range(3, 6):
        a_step(model, optimizer, step)
    assert model.weight.device.type == optimizer.state[model.weight]["exp_avg"].device.type == target
    expected, optimizer = linear_and_optimizer("cpu")
    for step in range(6):
        a_step(expected, optimizer, step)
    torch.testing.assert_close(model.weight.cpu(), expected.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch has no CUDA")
@pytest.mark.parametrize(("origin", "target"), [("cuda", "minitorch"), ("minitorch", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_from_native_cuda_and_for_it(origin, target):
    model, _ = linear_and_optimizer(origin)
    state = torch.load(saved(model.state_dict()), map_location=target, weights_only=True)
    assert all(t.device.type == target for t in state.values())
    model, _ = linear_and_optimizer("cpu")
    assert torch.equal(state["weight"].cpu(), model.weight)
