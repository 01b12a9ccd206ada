"""Results of which several are right: the order of equal elements, vectors determined up to a factor. Where minitorch's is
another right one than native's, native's is taken, so that the comparison goes on.
"""

from collections.abc import Callable
from typing import Any

import torch

from tests.conformance.crossing import tensors_in

# Which of several equal elements comes first is not defined for these; the value is where their `dim` argument stands.
TIES = {"sort": 0, "argsort": 0, "msort": 0, "topk": 1}

# These choose one element of each row, any of equal ones.
ANY_OF_EQUAL = {"kthvalue": 1, "mode": 0, "median": 0, "nanmedian": 0}

# Vectors that are determined up to a factor of size 1, or up to a basis where their values coincide: how to rebuild from
# all results what is determined.
GAUGES: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "linalg.eigh": lambda w, v: ((v * w.unsqueeze(-2)) @ v.mH, v.mH @ v),
    "linalg.eig": lambda w, v: (w, torch.linalg.vector_norm(v, dim=-2)),
    "linalg.eigvals": lambda w: (w,),
    "linalg.svd": lambda u, s, vh: svd_products(u, s, vh),
    **dict.fromkeys(("svd", "svd_lowrank", "pca_lowrank"), lambda u, s, v: svd_products(u, s, v.mH)),
}

# Eigenvalues of general matrices come in no particular order.
UNORDERED = {"linalg.eig", "linalg.eigvals"}


def svd_products(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> tuple[torch.Tensor, ...]:
    k = s.size(-1)
    return (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], s, u.mH @ u, vh @ vh.mH


def settle_ties(name: str, arguments: tuple, native: Any, ours: Any, batched: bool = False) -> None:
    """Where minitorch chose other indices than native, but of equal elements and no element twice, takes native's.

    `batched`: the first dimension of the input is none of the operator's, which counts from the next one.
    """
    x, args, kwargs = arguments
    dim = kwargs.get("dim", args[TIES[name]] if len(args) > TIES[name] else -1)
    dim += batched and dim >= 0
    if kwargs.get("stable") or x.dim() == 0:
        return
    for n, o in zip(tensors_in(native), tensors_in(ours), strict=True):
        if n.dtype != torch.int64 or n.shape != o.shape or n.dim() != x.dim():
            continue
        index = o.cpu()
        if torch.equal(n, index):
            continue
        same = torch.allclose(x.take_along_dim(n, dim).double(), x.take_along_dim(index, dim).double(), 0, 0, True)
        distinct = bool((index.sort(dim).values.diff(dim=dim) != 0).all())
        if same and distinct:
            o.copy_(n)


def settle_kth(name: str, arguments: tuple, native: Any, ours: Any, batched: bool = False) -> None:
    """The index among equal elements: where minitorch's element has native's value, takes native's index."""
    x, args, kwargs = arguments
    if isinstance(native, torch.Tensor):  # of all elements, without an index
        return
    dim = kwargs.get("dim", args[ANY_OF_EQUAL[name]] if len(args) > ANY_OF_EQUAL[name] else -1)
    dim = x.dim() + dim if dim < 0 else dim + batched
    value, index = list(tensors_in(native))
    found = list(tensors_in(ours))[1]
    if x.dim() == 0 or index.shape != found.shape or found.dtype != torch.int64:
        return
    places = found.cpu() if index.dim() == x.dim() else found.cpu().unsqueeze(dim)
    if torch.equal(x.gather(dim, places).reshape(value.shape).nan_to_num(), value.nan_to_num()):
        found.copy_(index)


def settle_tied_gradient(name: str, arguments: tuple, native: Any, ours: Any, batched: bool = False) -> None:
    """The gradient of what was chosen among equal elements: where minitorch's numbers are native's and stand at other
    ones of equal elements, takes native's. Other operators' gradients stay as they are.
    """
    place = {**TIES, **ANY_OF_EQUAL}.get(name)
    if place is None:
        return
    x, args, kwargs = arguments
    dim = kwargs.get("dim", args[place] if len(args) > place else -1)
    dim += batched and dim >= 0
    if x.dim() == 0 or x.is_complex() or native.shape != x.shape or ours.shape != x.shape or native.dtype != ours.dtype:
        return

    def in_order(gradient: torch.Tensor) -> torch.Tensor:
        """Sorted by the elements, and among equal ones by size."""
        by_size = gradient.sort(dim=dim, stable=True).indices
        by_element = x.detach().gather(dim, by_size).sort(dim=dim, stable=True).indices
        return gradient.gather(dim, by_size.gather(dim, by_element))

    if torch.allclose(in_order(native.detach()), in_order(ours.detach().cpu()), 0, 0, equal_nan=True):
        ours.detach().copy_(native.detach())


def nearest(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """For each number of the last dimension which one of `found`, each taken once, is nearest to it."""
    distance = (expected.unsqueeze(-1) - found.unsqueeze(-2)).abs()
    order = torch.empty(expected.shape, dtype=torch.int64)
    for i in range(expected.shape[-1]):
        order[..., i] = distance[..., i, :].argmin(-1)
        distance.scatter_(-1, order[..., i, None, None].expand(*distance.shape[:-1], 1), float("inf"))
    return order


def settle_gauge(name: str, native: Any, ours: Any) -> None:
    """Where minitorch's vectors are another valid choice than native's, takes native's."""
    expected, found = list(tensors_in(native)), list(tensors_in(ours))
    if [t.shape for t in expected] != [t.shape for t in found] or any(t.numel() == 0 for t in expected):
        return
    if [t.dtype for t in expected] != [t.dtype for t in found] or not all(t.isfinite().all() for t in expected):
        return
    wide = [t.detach().to(torch.complex128) for t in expected], [t.detach().cpu().to(torch.complex128) for t in found]
    tolerance = 1e-3 if expected[0].dtype in (torch.float32, torch.complex64) else 1e-8
    if name in UNORDERED:
        order = nearest(wide[0][0], wide[1][0])
        wide[1][0] = wide[1][0].gather(-1, order)
        if len(wide[1]) > 1:
            wide[1][1] = wide[1][1].gather(-1, order.unsqueeze(-2).expand_as(wide[1][1]))
    pairs = list(zip(GAUGES[name](*wide[0]), GAUGES[name](*wide[1]), strict=True))
    if name == "linalg.eig":  # vectors of norm 1 are parallel
        overlap = (wide[0][1].conj() * wide[1][1]).sum(-2).abs()
        pairs.append((torch.ones_like(overlap), overlap))
    if all(torch.allclose(a, b, tolerance, tolerance) for a, b in pairs):
        for n, o in zip(expected, found, strict=True):
            if name in UNORDERED or n.dim() == max(t.dim() for t in expected):
                o.detach().copy_(n.detach())
