"""Names of the variants; imports no torch, so that the command line's help comes at once."""

VARIANTS = (
    "forward", "noncontig", "layouts", "inplace", "out", "grad", "gradgrad", "jvp", "vmap", "func", "fake", "errors",
)  # fmt: skip

# What vmap, func and fake run in: the transforms are the same code for every dtype of a kind.
TRANSFORMED_DTYPES = ("float32", "complex64", "int64", "bool")

# Sample inputs a row in `make test`, spread evenly over all that op_db has, in float32 and in every other dtype.
SAMPLES = "8,4"


def limit_for(dtype: str, limit: str) -> int | None:
    """`limit` is "all", a number of samples, or one for float32 and one for other dtypes with a comma between them."""
    if limit == "all":
        return None
    numbers = [int(n) for n in limit.split(",")]
    return numbers[0] if dtype == "float32" else numbers[-1]
