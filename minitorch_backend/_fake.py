"""What results are like, for FakeTensorMode: torch.compile and torch.export plan with its answers.

PyTorch's own rules for attention are made for another device. Ours give native's strides, as csrc/ops/attention.cpp
does; a plan made with others fails at a view in the middle of the graph. What bags of embeddings save for the backward
pass has other sizes on the CPU than elsewhere, and ours has the CPU's on a GPU, too. Batch norm in evaluation mode also
saves what has other sizes, none on the CPU; but there PyTorch's decomposition answers before any rule, and it looks at
the device's name.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_impls import op_implementations_dict
from torch.utils._pytree import tree_leaves, tree_map


def _in_order_of(like: torch.Tensor, sizes: tuple[Any, ...]) -> torch.Tensor:
    """A tensor of these sizes whose dimensions lie in memory in the order that those of ``like`` have."""
    strides, step = [0] * len(sizes), 1
    for d in sorted(reversed(range(len(sizes))), key=like.stride):
        strides[d], step = step, step * sizes[d]
    return like.new_empty_strided(sizes, strides)


def _swapped(t: torch.Tensor, d: int, e: int) -> torch.Tensor:
    """A tensor of t's sizes that is contiguous with dimensions d and e exchanged."""
    return t.new_empty(t.transpose(d, e).shape).transpose(d, e)


def _native_fuses(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    rows = all(t.stride(-1) == 1 for t in (query, key, value))
    return rows and bool(query.shape[-1] == value.shape[-1])


def _forward(
    _mode: Any, _op: Any, query: Any, key: Any, value: Any, bias: Any = None, *_: Any, **__: Any
) -> tuple[Any, ...]:
    in_order = _native_fuses(query, key, value) and (bias is None or bias.stride(-1) == 1)
    in_order = in_order and all(query.stride(d) != 0 or query.shape[d] == 1 for d in range(4))
    sizes = (*query.shape[:3], value.shape[3])
    out = _in_order_of(query, sizes) if in_order else query.new_empty(sizes)
    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    seed, offset = (query.new_empty((), dtype=torch.int64, device="cpu") for _ in range(2))
    lse = query.new_empty(query.shape[:3], dtype=exact)
    return out, lse, None, None, query.shape[2], key.shape[2], seed, offset, None


def _backward_on_cpu(
    _mode: Any, _op: Any, _grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any
) -> tuple[Any, ...]:
    if _native_fuses(query, key, value):
        return _swapped(query, 1, 2), _swapped(key, 1, 2), _swapped(value, 1, 2), None
    return query.new_empty(query.shape), _swapped(key, 2, 3), value.new_empty(value.shape), None


def _backward_on_cuda(
    _mode: Any, _op: Any, _grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any
) -> tuple[Any, ...]:
    return (*(_in_order_of(t, t.shape) for t in (query, key, value)), None)


def _on(device: str) -> Callable[[Any], Any]:
    """Makes tensors of trees into their likes on another device."""

    def moved(t: Any) -> Any:
        return t.new_empty_strided(t.size(), t.stride(), device=device) if isinstance(t, torch.Tensor) else t

    return moved


def _as_on_cpu(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    devices = {t.device for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
    if not any(device.type == "minitorch" for device in devices):
        previous = _PREVIOUS.get(op)
        return previous(mode, op, *args, **kwargs) if previous is not None else NotImplemented
    if len(devices) > 1:  # an error, as it will be
        return NotImplemented
    results = op(*tree_map(_on("cpu"), args), **tree_map(_on("cpu"), kwargs))
    return tree_map(_on(str(*devices)), results)


# Rules of PyTorch's for the operators that _as_on_cpu stands in for.
_PREVIOUS: dict[Any, Callable[..., Any]] = {}


def _install_as_on_cpu() -> None:
    aten = torch.ops.aten
    for op in (
        aten._embedding_bag.default,
        aten._embedding_bag_forward_only.default,
    ):
        if op_implementations_dict.get(op) is _as_on_cpu:
            continue
        if op in op_implementations_dict:
            _PREVIOUS[op] = op_implementations_dict[op]
        op_implementations_dict[op] = _as_on_cpu


def install(backend: str) -> None:
    aten = torch.ops.aten
    _install_as_on_cpu()
    forward = aten._scaled_dot_product_fused_attention_overrideable.default
    backward = aten._scaled_dot_product_fused_attention_overrideable_backward.default
    op_implementations_dict.setdefault(forward, _forward)
    op_implementations_dict.setdefault(backward, _backward_on_cpu if backend == "cpu" else _backward_on_cuda)
