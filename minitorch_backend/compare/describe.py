"""Tensors and arguments in a line of text."""

from typing import Any

import torch
from torch import Tensor

SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip
MOST_ITEMS = 4  # of a list, written out


def describe_tensor(t: Tensor) -> str:
    text = f"{SHORT.get(t.dtype, str(t.dtype))}[{', '.join(map(str, t.shape))}]"
    if not t.is_contiguous():
        text += f" strides {tuple(t.stride())}"
    if t.storage_offset():
        text += f" offset {t.storage_offset()}"
    return text


def describe_value(value: Any) -> str:
    if isinstance(value, Tensor):
        return describe_tensor(value)
    if isinstance(value, (list, tuple)):
        items = [describe_value(v) for v in value[:MOST_ITEMS]]
        more = f", … {len(value) - MOST_ITEMS} more" if len(value) > MOST_ITEMS else ""
        return f"[{', '.join(items)}{more}]"
    return repr(value)


def describe(args: Any, kwargs: dict | None = None) -> str:
    """Arguments as a report shows them: dtype, shape, and strides and offset where they are not the plain ones."""
    parts = [describe_value(a) for a in args] + [f"{k}={describe_value(v)}" for k, v in (kwargs or {}).items()]
    return ", ".join(parts)
