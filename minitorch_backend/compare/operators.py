"""What an operator's schema says about comparing it: what it writes, whether it makes views, whether it draws."""

from typing import Any

import torch

from minitorch_backend.compare.parts import IN_PARTS
from minitorch_backend.compare.references import REFERENCES

# Run as they are: they compute nothing, have to do with the process rather than with tensors, or ask what a device has.
IGNORED = {
    "aten::lift_fresh", "aten::is_pinned", "aten::_pin_memory", "aten::record_stream", "aten::set_",
    "aten::_cudnn_rnn_flatten_weight",
}  # fmt: skip
IGNORED_NAMESPACES = {"profiler", "prim", "prims", "c10d", "_c10d_functional", "debugprims"}
# Their results' values are whatever was in memory.
UNINITIALISED = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::resize_", "aten::empty_permuted", "aten::resize_as_",
}  # fmt: skip
# Arguments that are written although the schema does not say so.
HIDDEN_WRITES = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::miopen_batch_norm": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats": ("running_mean", "running_var"),
    "aten::batch_norm_gather_stats_with_counts": ("running_mean", "running_var"),
}
# Results that only the operator's own backward pass can read, or parts of which are never written (behind the end of a
# shorter sequence), or that are unique only up to sign or phase; and arguments that an operator uses as working memory.
OPAQUE_RESULTS = {
    "aten::mkldnn_rnn_layer": (3,), "aten::_linalg_svd": (0, 2), "aten::_linalg_eigh": (1,), "aten::linalg_eig": (1,),
    "aten::_cudnn_rnn": (3, 4), "aten::cudnn_batch_norm": (3,),
    "aten::_ctc_loss": (1,),
    "aten::_scaled_dot_product_efficient_attention": (1, 2, 3),
    "aten::_scaled_dot_product_flash_attention": (2, 3, 6, 7, 8),
}  # fmt: skip
WORKING_MEMORY = {"aten::mkldnn_rnn_layer_backward": "workspace", "aten::_cudnn_rnn_backward": "reserve"}
# Operators tagged as random that draw only if this argument is not 0.
DRAWS_IF = {
    "aten::_scaled_dot_product_fused_attention_overrideable": "dropout_p",
    "aten::_scaled_dot_product_flash_attention": "dropout_p",
    "aten::_scaled_dot_product_efficient_attention": "dropout_p",
    "aten::_scaled_dot_product_cudnn_attention": "dropout_p",
}
# They draw, although no tag says so.
RANDOM_WITHOUT_TAG = {"aten::normal_", "aten::uniform_", "aten::bernoulli_", "aten::random_", "aten::exponential_"}


class Operator:
    """Facts about one overload, worked out once."""

    __slots__ = (
        "arbiter", "draws_if", "full_name", "func", "ignored", "inplace_returns", "is_view", "mutated", "name",
        "opaque", "per_element", "positions", "random", "reference", "reshapes", "substitute", "uninitialised",
        "working_memory",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.name: str = schema.name
        self.full_name: str = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        self.ignored = schema.name in IGNORED or schema.name.split("::")[0] in IGNORED_NAMESPACES
        self.uninitialised = schema.name in UNINITIALISED
        hidden = HIDDEN_WRITES.get(schema.name, ())
        self.positions: dict[str, int] = {}
        mutated: list[int | str] = []
        for i, argument in enumerate(schema.arguments):
            writes = argument.alias_info is not None and argument.alias_info.is_write
            self.positions[argument.name] = i
            if writes or argument.name in hidden:
                mutated.append(argument.name if argument.kwarg_only else i)
        self.mutated = tuple(mutated)
        aliases = [r.alias_info is not None for r in schema.returns]
        self.is_view = bool(aliases) and all(aliases) and not any(r.alias_info.is_write for r in schema.returns)
        # t_, unsqueeze_, resize_: a view that replaces its argument.
        self.reshapes = torch.Tag.inplace_view in func.tags
        self.is_view = self.is_view or self.reshapes
        self.inplace_returns = any(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        self.random = torch.Tag.nondeterministic_seeded in func.tags or schema.name in RANDOM_WITHOUT_TAG
        self.per_element = schema.name.startswith(("aten::_foreach_", "aten::_fused_adam", "aten::_fused_sgd"))
        self.opaque = OPAQUE_RESULTS.get(schema.name, ())
        self.working_memory = self.positions.get(WORKING_MEMORY.get(schema.name, ""), -1)
        self.draws_if = DRAWS_IF.get(schema.name)
        self.substitute = REFERENCES.get(schema.name)
        self.reference = self.substitute or func
        self.arbiter = IN_PARTS.get(schema.name, self.reference)

    def draws(self, args: list, kwargs: dict) -> bool:
        """Whether a call takes random numbers."""
        if not self.random or self.draws_if is None:
            return self.random
        place = self.positions[self.draws_if]
        return bool(kwargs.get(self.draws_if, args[place] if place < len(args) else 0))

    def written(self, args: list, kwargs: dict) -> list[int | str]:
        """The arguments of a call that the operator writes, by position or by name."""
        found: list[int | str] = []
        for name in self.mutated:
            value = kwargs.get(name) if isinstance(name, str) else (args[name] if name < len(args) else None)
            if value is not None:
                found.append(name)
        return found


_OPERATORS: dict[Any, Operator | None] = {}


def operator_of(func: Any) -> Operator | None:
    """The facts about `func`; None when it is not an operator that can be compared."""
    try:
        return _OPERATORS[func]
    except KeyError:
        found = Operator(func) if isinstance(func, torch._ops.OpOverload) else None
        _OPERATORS[func] = found
        return found
