"""Checks of the sources that no compiler makes: include layers, torch-free kernels, file lengths.

Includes must point one way: core <- runtime <- kernels <- bridge <- ops <- autograd <- python/module. The first three
layers must not include a torch header. Each kernel that a header declares must have a function for the CPU; one without
a function for CUDA, and a file of more than 500 lines, are reported, not refused.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("core", "runtime", "kernels", "bridge", "ops", "autograd", "python")
TORCH_FREE = LAYERS[:3]
TORCH_HEADER = re.compile(r"(ATen|c10|torch|caffe2|pybind11)/|Python\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# The kernel slots are chosen when the backend starts, so the runtime names them.
ALLOWED = {("runtime", "kernels/kernel.h")}
KERNEL = re.compile(r"extern Kernel<[^;]*>\s+(\w+);")
REGISTERED = re.compile(r"(?:MT_REGISTER_KERNEL|MT_MARGIN)\((\w+),")
LIMIT = 500


def layer_of(path: pathlib.Path) -> str | None:
    parts = path.relative_to(ROOT / "csrc").parts
    return parts[0] if parts[0] in LAYERS else None


def check_includes(path: pathlib.Path) -> list[str]:
    layer = layer_of(path)
    if layer is None:
        return []
    errors = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        where, header = f"{path.relative_to(ROOT)}:{number}", match.group(2)
        if layer in TORCH_FREE and TORCH_HEADER.match(header):
            errors.append(f"{where}: csrc/{layer} must not include a torch header ({header})")
        target = header.split("/")[0]
        upward = match.group(1) == '"' and target in LAYERS and LAYERS.index(target) > LAYERS.index(layer)
        if upward and (layer, header) not in ALLOWED:
            errors.append(f"{where}: csrc/{layer} must not include csrc/{target} ({header})")
    return errors


def missing_kernels(side: str) -> list[str]:
    kernels = ROOT / "csrc" / "kernels"
    declared = {name for header in kernels.glob("*.h") for name in KERNEL.findall(header.read_text())}
    found = {n for f in (kernels / side).iterdir() if f.is_file() for n in REGISTERED.findall(f.read_text())}
    return [f"csrc/kernels/{side}: nothing registers {name}" for name in sorted(declared - found)]


def main() -> int:
    errors = missing_kernels("cpu")
    for missing in missing_kernels("cuda"):
        print(f"note: {missing}")
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            errors += check_includes(path)
    for folder in ("csrc", "minitorch_backend", "tests", "examples", "benchmarks", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py", ".pyi") and "__pycache__" not in path.parts:
                lines = len(path.read_text().splitlines())
                if lines > LIMIT:
                    print(f"note: {path.relative_to(ROOT)} has {lines} lines (aim for at most {LIMIT})")
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
