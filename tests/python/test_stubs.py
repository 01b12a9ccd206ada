"""The type stub of the compiled library says what the library has."""

import ast
import re
from pathlib import Path

import minitorch_backend
from minitorch_backend import _C

STUB = ast.parse((Path(minitorch_backend.__file__).parent / "_C.pyi").read_text())
FUNCTIONS = {node.name: node.args for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def real_arguments(function):
    """Names from the signature that pybind11 writes into the docstring; one without a name is positional only."""
    inside = re.match(r"\w+\((.*)\) -> ", function.__doc__).group(1)
    return re.findall(r"(?:^|, )(\w+): ", inside)


def test_names():
    public = {name for name in dir(_C) if not name.startswith("_")}
    assert public == FUNCTIONS.keys() | CLASSES.keys()


def test_arguments():
    for name, args in FUNCTIONS.items():
        real = real_arguments(getattr(_C, name))
        positional = [f"arg{i}" for i in range(len(args.posonlyargs))]
        assert positional + [a.arg for a in args.args] == real, name


def test_classes():
    for name, node in CLASSES.items():
        real = {a for a in vars(getattr(_C, name)) if not a.startswith("_")} - {"name", "value"}
        members = [m for m in node.body if not isinstance(m, ast.Expr)]
        stub = {m.name if isinstance(m, ast.FunctionDef) else m.target.id for m in members}
        assert stub - {"__init__", "name", "value"} == real, name
