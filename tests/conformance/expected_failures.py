"""Claimed rows that do not pass, each with the reason. Strict: a row that begins to pass must leave this list.

`(op, variant, dtypes, reason)`; the dtypes are separated by blanks, None stands for all that native has.
"""

FLOATS = "float32 float64 bfloat16 float16"
BESSEL = "native is off by 3e-7 beyond 5, ours by 1e-16 (tests/python/test_special.py)"

EXPECTED_FAILURES: tuple[tuple[str, str, str | None, str], ...] = (
    ("mean", "out", FLOATS, "both refuse an integer out=, but native has written the sum into it by then"),
    ("narrow_copy", "errors", None, "native's dense kernel fails an internal assertion instead of an IndexError"),
    ("narrow_copy", "out", None, "native refuses a wrong dtype of out= by an internal assertion, ours casts into it"),
    ("native_group_norm", "noncontig", FLOATS, "native insists on contiguous input, ours does not"),
    ("native_group_norm", "grad", FLOATS, "native insists on contiguous input, ours does not"),
    (
        "nn_functional_conv_transpose3d",
        "forward",
        "float32",
        "error 2e-4, native's 1e-4, values to 890",
    ),
    ("nn_functional_conv_transpose3d", "noncontig", "float32", "as forward"),
    (
        "nn_functional_multi_head_attention_forward",
        "noncontig",
        "bfloat16",
        "ill-conditioned: a weight exp(-10), where one rounding of the logit is a factor 1.6; native is off by 6 times too",
    ),
    (
        "special_i0e",
        "grad",
        "bfloat16 float16",
        "two 16-bit values that nearly cancel; native's are off, and so is the rest",
    ),
    ("special_bessel_j0", "forward", "float64", BESSEL),
    ("special_bessel_j0", "noncontig", "float64", BESSEL),
    ("special_bessel_j0", "out", "float64", BESSEL),
    ("special_bessel_y1", "forward", "float64", BESSEL),
    ("special_bessel_y1", "noncontig", "float64", BESSEL),
    ("special_bessel_y1", "out", "float64", BESSEL),
    (
        "linalg_householder_product",
        "grad",
        "float32",
        "the gradient of tau cancels: differs from native by 7e-5 where the value is 5",
    ),
    ("native_batch_norm", "out", FLOATS, "both refuse a wrong dtype of out=, in other words"),
    ("_native_batch_norm_legit", "out", FLOATS, "both refuse a wrong dtype of out=, in other words"),
)


def reason(op: str, variant: str, dtype: str) -> str | None:
    """Why this row is expected to fail, or None."""
    for name, v, dtypes, why in EXPECTED_FAILURES:
        if (name, v) == (op, variant) and (dtypes is None or dtype in dtypes.split()):
            return why
    return None
