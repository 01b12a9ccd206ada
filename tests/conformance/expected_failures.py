"""Claimed rows that do not pass, each with the reason. Strict: a row that begins to pass must leave this list.

`(op, variants, dtypes, reason)`; variants and dtypes are separated by blanks, None stands for all that native has.
"""

FLOATS = "float32 float64 bfloat16 float16"
SHORT = "bfloat16 float16"
BESSEL = "native is off by 3e-7 beyond 5, ours by 1e-16 (tests/python/test_special.py)"
SAVED = "the saved 1/std has 16 bits, as native's has; native's further rounding cancels a gradient of nearly zero"
REFLECTORS = "the gradient of tau cancels: differs from native by 7e-5 where the value is 5"

EXPECTED_FAILURES: tuple[tuple[str, str, str | None, str], ...] = (
    ("mean", "out", None, "both refuse an integer out=, but native has written the sum into it by then"),
    ("narrow_copy", "errors", None, "native's dense kernel fails an internal assertion instead of an IndexError"),
    ("narrow_copy", "out", None, "native refuses a wrong dtype of out= by an internal assertion, ours casts into it"),
    ("native_group_norm", "noncontig layouts grad", FLOATS, "native insists on contiguous input, ours does not"),
    (
        "special_i0e",
        "grad jvp",
        "bfloat16",
        "two 16-bit values that nearly cancel; native's are off, and so is the rest",
    ),
    ("special_bessel_j0", "forward noncontig layouts out", "float64", BESSEL),
    ("special_bessel_y1", "forward noncontig layouts out", "float64", BESSEL),
    ("native_batch_norm", "out", FLOATS, "both refuse a wrong dtype of out=, in other words"),
    ("_native_batch_norm_legit", "out", FLOATS, "both refuse a wrong dtype of out=, in other words"),
    (
        "fft_hfft2",
        "layouts",
        "int8 int16 int32 int64",
        "error 1.3e-7 of the largest value, native's 0.9e-7; an element near zero tells",
    ),
    ("nn_functional_pairwise_distance", "grad", "bfloat16", "p = -1: 16-bit steps, off by one unit more than native"),
    ("ormqr", "func", "float32", REFLECTORS),
    ("linalg_householder_product", "gradgrad", "float32", REFLECTORS),
    ("linalg_pinv_hermitian", "gradgrad", "complex64", "errors of eigenvectors, cubed: 1.3e-5 where native has 1e-6"),
    ("native_batch_norm", "grad", "float16", SAVED),
    ("_native_batch_norm_legit", "grad", "float16", SAVED),
    ("nn_functional_instance_norm", "gradgrad", "bfloat16", "PyTorch's double backward in 16-bit steps, as native's"),
    ("nn_functional_grid_sample", "gradgrad", "bfloat16", "16-bit coordinates: both are off by a third of the value"),
    ("matrix_exp", "grad", SHORT, "native's matrix exponential is nan in 16 bits, ours computes in float"),
    (
        "nn_functional_linear_cross_entropy_chunked_none",
        "grad",
        "float16",
        "a chain of operators that each round to 16 bits: off by a unit where native is off by half of one",
    ),
    ("unique", "forward noncontig layouts", "uint16 uint32 uint64", "sort has no kernel for wide unsigned integers"),
    ("to_sparse", "vmap", None, "both refuse, in other words: neither has as_strided on sparse tensors"),
    ("to_sparse", "func", "float32", "both refuse, in other words: neither has as_strided on sparse tensors"),
    ("masked_median", "layouts", "float64", "native's median reads past the end of an expanded slice"),
)


def reason(op: str, variant: str, dtype: str) -> str | None:
    """Why this row is expected to fail, or None."""
    for name, variants, dtypes, why in EXPECTED_FAILURES:
        if name == op and variant in variants.split() and (dtypes is None or dtype in dtypes.split()):
            return why
    return None
