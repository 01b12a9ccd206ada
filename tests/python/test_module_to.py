"""Module.to between CPU and minitorch keeps what native's does between CPU and CUDA: the parameter objects, and with
them tied weights, optimizers, hooks, weak references and subclasses."""

import copy
import weakref

import pytest
import torch
from torch import nn

import minitorch_backend  # noqa: F401


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        return self.first(x) * self.first.weight[0] * self.scale


def move_there_and_back(module):
    for device in ("minitorch", "cpu", "minitorch"):
        assert module.to(device) is module
        yield device


def test_parameters_keep_their_identity_and_values():
    module = Tied()
    before = [(p, p.detach().clone()) for p in module.parameters()]
    for device in move_there_and_back(module):
        for (p, value), q in zip(before, module.parameters(), strict=True):
            assert p is q and p.device.type == device and p.is_leaf and p.requires_grad
            assert torch.equal(p.detach().cpu(), value)
        assert module.second.weight is module.first.weight
        assert module.scale.device.type == device
    assert module.minitorch() is module and module.cpu() is module
    assert module.first.weight.device.type == "cpu"


def test_weights_tied_between_modules_moved_one_by_one():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    a.to("minitorch")
    assert b.weight is a.weight and b.weight.is_minitorch and b.bias.device.type == "cpu"
    b.to("minitorch")
    assert b.weight is a.weight and b.bias.is_minitorch


def test_an_optimizer_made_before_goes_on_after_a_step():
    module = Tied()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.9)
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    before = module.first.weight.detach().clone()
    optimizer.zero_grad()
    module.to("minitorch")
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in module.parameters()}
    optimizer.state.clear()
    module.first.weight.grad = torch.ones(4, 4).to("minitorch")
    with torch.no_grad():
        for p in optimizer.param_groups[0]["params"]:
            if p.grad is not None:
                p.add_(p.grad, alpha=-1.0)
    assert torch.equal(module.first.weight.detach().cpu(), before - 1)


def test_gradients_and_live_graphs_move_too():
    weight = nn.Parameter(torch.arange(4.0))
    module = nn.Module()
    module.weight = weight
    graph = weight * weight
    (weight * 3).backward(torch.ones(4))
    module.to("minitorch")
    assert module.weight is weight
    assert weight.grad.is_minitorch and weight.grad.tolist() == [3.0] * 4
    out = weight * weight  # a new graph on the new device, with a new accumulator
    out.backward(torch.ones(4).to("minitorch"))
    assert torch.equal(weight.grad.cpu(), 3 + 2 * torch.arange(4.0))
    assert graph.device.type == "cpu"


def test_hooks_survive():
    weight = nn.Parameter(torch.ones(3))
    module = nn.Module()
    module.weight = weight
    calls = []
    weight.register_hook(lambda g: calls.append("tensor") or g * 2)
    module.register_forward_pre_hook(lambda m, args: calls.append("module"))
    module.forward = lambda x: x * weight
    module.to("minitorch")
    module(torch.ones(3).to("minitorch")).backward(torch.ones(3).to("minitorch"))
    assert calls == ["module", "tensor"]
    assert weight.grad.tolist() == [2.0] * 3


def test_weak_references_and_views_do_not_stop_it():
    module = nn.Linear(3, 2)
    reference = weakref.ref(module.weight)
    view = module.weight.view(-1)
    detached = module.weight.detach()
    module.to("minitorch")
    assert reference() is module.weight and module.weight.is_minitorch
    assert view.device.type == "cpu" and detached.device.type == "cpu"  # as native: they keep the old memory
    assert torch.equal(module.weight.detach().cpu(), detached)


class Marked(nn.Parameter):
    pass


def test_subclasses_and_attributes_survive():
    module = nn.Module()
    module.weight = Marked(torch.ones(2))
    module.weight.note = "kept"
    module.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    module.to("minitorch")
    assert type(module.weight) is Marked and module.weight.note == "kept"
    assert not module.frozen.requires_grad and module.frozen.is_minitorch


def test_shared_buffers_share_memory_only_as_native_would():
    module = nn.Module()
    shared = torch.ones(2)
    module.register_buffer("a", shared)
    module.register_buffer("b", shared)
    module.register_buffer("unset", None)
    module.to("minitorch")
    assert module.a.is_minitorch and module.b.is_minitorch and module.unset is None
    assert module.a.tolist() == module.b.tolist() == [1.0, 1.0]


def test_dtype_and_device_at_once():
    module = Tied()
    weight = module.first.weight
    module.to("minitorch", torch.float64)
    assert module.first.weight is weight and weight.dtype == torch.float64 and weight.is_minitorch
    module.to(torch.bfloat16)
    assert weight.dtype == torch.bfloat16 and module.second.weight is weight
    module.half().float().cpu()
    assert weight.dtype == torch.float32 and weight.device.type == "cpu"


def test_modules_elsewhere_are_as_they_were():
    module = nn.Linear(2, 2)
    weight = module.weight
    module.to(torch.float64)
    assert module.weight is weight
    meta = nn.Linear(2, 2)
    before = meta.weight
    meta.to("meta")
    assert meta.weight is not before and meta.weight.is_meta  # native replaces here
    assert not torch.__future__.get_swap_module_params_on_conversion()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2).data = torch.ones(2, device="meta")


def test_sparse_and_meta_do_not_mix_with_ours():
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.to("minitorch").data = x.to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.to("minitorch").data = x.to("meta")
    assert not torch._has_compatible_shallow_copy_type(x.to("minitorch"), x.to_sparse())
    assert torch._has_compatible_shallow_copy_type(x, x.to("minitorch"))


def test_to_empty_and_copies():
    module = nn.Linear(2, 2, device="meta").to_empty(device="minitorch")
    assert module.weight.is_minitorch and module.weight.shape == (2, 2)
    twin = copy.deepcopy(Tied().to("minitorch"))
    assert twin.first.weight is twin.second.weight and twin.first.weight.is_minitorch


@pytest.mark.parametrize("flag", [True, False])
def test_torchs_own_switches_still_work(flag):
    torch.__future__.set_swap_module_params_on_conversion(flag)
    try:
        module = Tied()
        weight = module.first.weight
        module.to("minitorch")
        assert module.first.weight is weight and module.second.weight is weight
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_data_assignment_moves_a_tensor_in_place():
    p = nn.Parameter(torch.ones(3))
    version = p._version
    p.data = p.data.to("minitorch")
    assert p.is_minitorch and (p + 1).tolist() == [2.0] * 3 and p._version == version
    p.data = torch.zeros(2)
    assert p.device.type == "cpu" and p.shape == (2,)
