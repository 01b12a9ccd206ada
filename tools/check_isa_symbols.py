"""Checks that kernels compiled for AVX2 and AVX-512 share no weak function with other code.

The linker keeps one copy of a weak (inline) function. If the copy it keeps was compiled for AVX-512, a call from
baseline code crashes on an older processor. So every function that an instruction set's object files define must be
local to the file or carry the instruction set's namespace in its name.

    python tools/check_isa_symbols.py build/release
"""

import pathlib
import subprocess
import sys

ISAS = ("avx2", "avx512")


def weak_functions(objects: list[pathlib.Path], isa: str) -> list[str]:
    """`object: symbol` for each weak function whose mangled name lacks the namespace of the instruction set."""
    if not objects:
        return []
    output = subprocess.run(["nm", "-A", *map(str, objects)], check=True, capture_output=True, text=True).stdout
    namespace = f"{len(isa)}{isa}"
    found = []
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[-2] == "W" and namespace not in fields[-1] and ":" in fields[0]:
            found.append(f"{fields[0].rsplit(':', 1)[0]}: {fields[-1]}")
    return found


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    if not build.is_dir():
        print(f"no build folder {build}: run 'make setup' first")
        return 1
    bad = []
    for isa in ISAS:
        bad += weak_functions(sorted(build.glob(f"CMakeFiles/kernels_{isa}.dir/**/*.o")), isa)
    if bad:
        names = subprocess.run(["c++filt"], input="\n".join(bad), capture_output=True, text=True, check=False)
        print("functions that the linker may share between instruction sets:")
        print(names.stdout if names.returncode == 0 else "\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
