"""Kernel files: what ``minitorch bench --kernel FILE`` takes.

A Python file calls ``kernels.override`` or ``kernels.elementwise(..., override=...)`` as a program would. A C++ or CUDA
file is the source alone and says in comments at its top, before any code, what it is for:

    // operator: aten::_softmax
    // dtypes: float32, bfloat16
    // strided
"""

import pathlib
import re
import runpy
from collections.abc import Iterator

import torch

from minitorch_backend import kernels
from minitorch_backend.kernels.overriding import Override

CPP, CUDA = (".cpp", ".cc", ".cxx"), (".cu",)
SUFFIXES = (".py", *CPP, *CUDA)
YES = {"": True, "true": True, "yes": True, "false": False, "no": False}  # what may follow "// strided:"


def load(path: pathlib.Path) -> list[Override]:
    """The overrides of a file, compiled but not in force.

    Raises ValueError for a file without one, and whatever the file or its compilation raises.
    """
    if path.suffix == ".py":
        with kernels.collect() as found:
            try:
                runpy.run_path(str(path), run_name="minitorch_kernel_file")
            except SystemExit as error:
                raise ValueError(f"{path} ends the program (sys.exit({error.code!r})) when it is loaded") from None
        if not found:
            raise ValueError(f"{path} calls neither kernels.override nor kernels.elementwise(..., override=...)")
        return found
    if path.suffix not in CPP + CUDA:
        raise ValueError(f"{path}: a kernel file ends in .py, {', '.join(CPP + CUDA)}")
    text = path.read_text(encoding="utf-8-sig", errors="replace")  # comments may be in any encoding
    try:
        says = header(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not says.get("operator"):
        raise ValueError(f"{path} does not say what it is for: begin it with a line '// operator: aten::NAME'")
    names = re.split(r"[,\s]+", says.get("dtypes", "float32"))
    dtypes = [getattr(torch, name, None) for name in names]
    if not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise ValueError(f"{path}: {says['dtypes']!r} is not a list of dtypes such as float32, bfloat16")
    form = {"cuda": text} if path.suffix in CUDA else {"source": text}
    strided = "strided" in says and YES[says["strided"].lower()]
    with kernels.collect() as found:
        beside = [f"-I{path.resolve().parent}"]  # headers of its own
        kernels.override(says["operator"], dtypes=dtypes, strided=strided, flags=beside, **form)
    return found


def header(text: str) -> dict[str, str]:
    """What the comments before the first line of code say: key -> value.

    Raises ValueError for a key that is said twice, or for a ``strided`` that is neither yes nor no.
    """
    says: dict[str, str] = {}
    for line in top_comments(text):
        # "operator" and "dtypes" have a colon; "strided" may stand alone. Other comments are for people.
        found = re.fullmatch(r"//[/!]?\s*(?:(operator|dtypes|strided)\s*:\s*(.*?)|(strided))\s*", line)
        if not found:
            continue
        key, value = found.group(1) or found.group(3), found.group(2) or ""
        if key in says:
            raise ValueError(f"'// {key}' is there twice; a file has one kernel")
        says[key] = value
    if (strided := says.get("strided", "").lower()) not in YES:
        raise ValueError(f"'// strided: {strided}' is neither true nor false")
    return says


def top_comments(text: str) -> Iterator[str]:
    """The ``//`` lines before the first line of code; those of a /* block */ are passed over."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if inside or line.startswith("/*"):
            _, end, rest = line.removeprefix("/*").partition("*/")
            inside = not end
            if end and rest.strip():
                return
        elif line.startswith("//"):
            yield line
        elif line:
            return
