"""Checks that the compiler vectorised the loops it is trusted with: each pointwise operator in float32.

Every operator is one function, ``BlockOf<functor>::run``, whose loop the compiler turns into vector code, or quietly
does not: a call to libm, a branch that it cannot convert, or an aliasing doubt is enough. So the object files are
disassembled, and a function without packed arithmetic on the instruction set's registers is an error, unless
``SCALAR`` names it with the reason. A name there that has become vectorised is an error too.

    python tools/check_vectorised.py build/release
"""

import pathlib
import re
import shutil
import subprocess
import sys

# Instruction set: the registers that its loops use. With AVX-512 short loops may use 256 bits.
REGISTERS = {"avx2": r"%ymm", "avx512": r"%[yz]mm"}
_INTEGER = r"p?(?:add|sub|mul|div|min|max|and|andn|or|xor|ternlog|blendv|abs|sll|sra|srl|cmp\w*)"
_FLOAT = r"f[n]?m(?:add|sub)\d+|sqrt|rndscale|round|cvt\w+|blendm|getexp|scalef"
PACKED = rf"v(?:{_INTEGER}|{_FLOAT})\w*"
SYMBOL = re.compile(r"^[0-9a-f]+ <minitorch::\w+::engine::BlockOf<minitorch::functors::\w+::(\w+)<float>,.*>::run\(")

PROBE_CHAINS = 12  # kChains in probe.cpp

_SPECIAL = "branches on the size of the argument: series, recurrences and asymptotic forms"
_RECURRENCE = "a recurrence as long as the element's order"
SCALAR = {
    **dict.fromkeys(["Igamma", "Igammac", "Polygamma", "Trigamma", "Zeta"], _SPECIAL),
    **dict.fromkeys(
        ["AiryAi", "BesselK0", "BesselK1", "ScaledBesselK0", "ScaledBesselK1", "SphericalBesselJ0"], _SPECIAL
    ),
    **dict.fromkeys(["StandardGammaGrad", "DirichletGrad"], _SPECIAL),
    **dict.fromkeys(["BesselJ0", "BesselJ1", "BesselY0", "BesselY1"], "left to libm"),
    **dict.fromkeys([f"{shift}Chebyshev{kind}" for shift in ("", "Shifted") for kind in "TUVW"], _RECURRENCE),
    **dict.fromkeys(["HermiteH", "HermiteHe", "LaguerreL", "LegendreP"], _RECURRENCE),
    **dict.fromkeys(["Frexp", "Ldexp"], "bit manipulation, left to libm"),
    **dict.fromkeys(["MakeComplex", "Polar"], "results interleave in memory"),
}


def functions(path: pathlib.Path):
    """(functor, text) of each float32 operator in an object file."""
    text = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", str(path)], check=True, capture_output=True, text=True
    ).stdout
    for part in text.split("\n\n"):
        head, _, body = part.lstrip().partition("\n")
        if match := SYMBOL.match(head):
            yield match.group(1), body


def check(build: pathlib.Path, isa: str) -> tuple[set[str], set[str]]:
    """Names of the operators that are vectorised for the instruction set, and of those that are not."""
    packed = re.compile(rf"\t{PACKED}\s.*{REGISTERS[isa]}")
    vectorised, scalar = set(), set()
    for path in sorted(build.glob(f"CMakeFiles/kernels_{isa}.dir/csrc/kernels/cpu/pointwise_*.o")):
        for name, body in functions(path):
            (vectorised if len(packed.findall(body)) >= 1 else scalar).add(name)
    return vectorised, scalar


def chains_of_the_probe(build: pathlib.Path, isa: str) -> int:
    """Multiply-adds in the loops that measure the float32 and float64 peak; with fewer than they count it is wrong."""
    path = build / f"CMakeFiles/kernels_{isa}.dir/csrc/kernels/cpu/probe.cpp.o"
    command = ["objdump", "-d", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return len(re.findall(r"\tvfmadd\w*p[sd]\s", text))


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    if shutil.which("objdump") is None:
        print("check_vectorised.py needs objdump (binutils)")
        return 1
    status = 0
    for isa in REGISTERS:
        vectorised, scalar = check(build, isa)
        if not vectorised:
            print(f"no pointwise objects for {isa} in {build}: run 'make setup' first")
            status = 1
        elif (chains := chains_of_the_probe(build, isa)) < 2 * PROBE_CHAINS:
            print(f"{isa}: {chains} multiply-adds in probe.cpp, of 2 x {PROBE_CHAINS} that it counts")
            status = 1
        for name in sorted(scalar - SCALAR.keys()):
            print(f"{isa}: the loop of {name}<float> is not vectorised")
            status = 1
        for name in sorted(vectorised & SCALAR.keys()):
            print(f"{isa}: {name}<float> is vectorised now: take it off the list in tools/check_vectorised.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
