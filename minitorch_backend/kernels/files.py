"""Kernel files: what ``minitorch bench --kernel FILE`` takes.

A Python file calls ``kernels.override`` or ``kernels.elementwise(..., override=...)`` as a program would. A C++ or CUDA
file is the source alone and says in comments at its top what it is for:

    // operator: aten::_softmax
    // dtypes: float32, bfloat16
"""

import pathlib
import re
import runpy

import torch

from minitorch_backend import kernels
from minitorch_backend.kernels.overriding import Override

CPP, CUDA = (".cpp", ".cc", ".cxx"), (".cu",)
SUFFIXES = (".py", *CPP, *CUDA)


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
    says = dict(re.findall(r"^//\s*(operator|dtypes|strided)\s*:?[ \t]*(.*)$", text, re.MULTILINE))
    if not says.get("operator"):
        raise ValueError(f"{path} does not say what it is for: begin it with a line '// operator: aten::NAME'")
    names = re.split(r"[,\s]+", says.get("dtypes", "float32").strip())
    dtypes = [getattr(torch, name, None) for name in names]
    if not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise ValueError(f"{path}: {says['dtypes']!r} is not a list of dtypes such as float32, bfloat16")
    form = {"cuda": text} if path.suffix in CUDA else {"source": text}
    with kernels.collect() as found:
        kernels.override(says["operator"].strip(), dtypes=dtypes, strided="strided" in says, **form)
    return found
