"""A mypy plugin that knows what minitorch adds to torch.

PyTorch's types cannot list devices that come from outside, so ``torch.minitorch``, ``tensor.minitorch()``,
``module.minitorch()`` and ``tensor.is_minitorch`` are unknown to type checkers. For mypy, in pyproject.toml:

    [tool.mypy]
    plugins = ["minitorch_backend.mypy_plugin"]

A checker without plugins understands ``from minitorch_backend import device``, which is ``torch.minitorch``, and
``x.to("minitorch")``.
"""

from collections.abc import Callable

from mypy.nodes import ARG_NAMED_OPT, ARG_OPT, GDEF, MDEF, Argument, MypyFile, SymbolTableNode, TypeVarExpr, Var
from mypy.plugin import ClassDefContext, Plugin
from mypy.plugins.common import add_attribute_to_class, add_method_to_class
from mypy.semanal_shared import SemanticAnalyzerInterface
from mypy.types import AnyType, TypeOfAny, TypeVarId, TypeVarType
from mypy.typevars import fill_typevars

DEVICE = "minitorch_backend.device"


def _argument(name: str, kind: object = ARG_OPT) -> Argument:
    anything = AnyType(TypeOfAny.explicit)
    return Argument(Var(name, anything), anything, None, kind)  # type: ignore[arg-type]


def _add_module(api: SemanticAnalyzerInterface) -> None:
    torch, device = api.modules.get("torch"), api.modules.get(DEVICE)
    if torch is not None and device is not None:
        torch.names["minitorch"] = SymbolTableNode(GDEF, device)


def _extend_tensor(context: ClassDefContext) -> None:
    add_attribute_to_class(context.api, context.cls, "is_minitorch", context.api.named_type("builtins.bool"))
    arguments = [
        _argument("device"),
        _argument("non_blocking"),
        _argument("memory_format", ARG_NAMED_OPT),
    ]
    add_method_to_class(context.api, context.cls, "minitorch", arguments, fill_typevars(context.cls.info))
    _add_module(context.api)


def _extend_module(context: ClassDefContext) -> None:
    # The method returns what it is called on: a type variable of its own, which mypy looks up among the class's names.
    info, name = context.cls.info, "_MinitorchSelf"
    bound, unknown = fill_typevars(info), AnyType(TypeOfAny.from_omitted_generics)
    fullname = f"{info.fullname}.{name}"
    info.names[name] = SymbolTableNode(MDEF, TypeVarExpr(name, fullname, [], bound, unknown))
    scope = TypeVarId(-1, namespace=f"{info.fullname}.minitorch")
    own = TypeVarType(name, fullname, scope, [], bound, unknown)
    arguments = [_argument("device")]
    add_method_to_class(context.api, context.cls, "minitorch", arguments, own, self_type=own, tvar_def=own)


class MinitorchPlugin(Plugin):
    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        return [(10, DEVICE, -1)] if file.fullname == "torch" else []

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return {"torch._tensor.Tensor": _extend_tensor, "torch.nn.modules.module.Module": _extend_module}.get(fullname)


def plugin(version: str) -> type[Plugin]:
    """What mypy calls with its version."""
    return MinitorchPlugin
