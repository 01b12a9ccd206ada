"""Which aten operators run on minitorch, and how: from PyTorch's dispatcher, so it cannot be out of date.

An operator counts as
own        a kernel is registered for the device
composite  PyTorch composes it from other operators (which must be there in turn)
missing    native CPU has a kernel and minitorch does not: the fallback decides what happens
refused    the same, by design: what REFUSED says is not part of this device
Operators that native CPU does not have either (other vendors' libraries, sparse and quantized ones) are left out.
"""

import collections

import torch

# Overloads that stay missing on purpose, by what they would need. Calls raise NotImplementedError with the name.
REFUSED = {
    "quantized tensors": """_empty_affine_quantized _empty_per_channel_affine_quantized dequantize
        _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic quantized_gru quantized_lstm""",
    "compressed sparse tensors": """_to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _spdiags sspaddmm
        _validate_compressed_sparse_indices""",
    "another library's tensors": "mkldnn_rnn_layer mkldnn_rnn_layer_backward to_mkldnn",
    "weights packed for native's CPU kernels": """_convert_weight_to_int4pack_for_cpu _dyn_quant_matmul_4bit
        _dyn_quant_pack_4bit_weight _weight_int4pack_mm_for_cpu""",
    "memory that is a file's": "from_file",
    "being native's CPU, by name": """_scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention_for_cpu_backward""",
    "being PyTorch's own tests": """_foobar _test_functorch_fallback _test_optional_filled_intlist
        _test_optional_floatlist _test_optional_intlist""",
}
_REASON = {name: reason for reason, names in REFUSED.items() for name in names.split()}


def refused_for(base: str) -> str | None:
    """What a refused operator would need; None for every other operator."""
    return _REASON.get(base)


COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def how(name: str) -> str | None:
    """own, composite, missing, or None for an operator that native CPU does not have; REFUSED is not consulted."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "PrivateUse1"):
        return "own"
    if any(has(name, key) for key in COMPOSITE_KEYS):
        return "composite"
    return "missing" if has(name, "CPU") else None


def operators() -> dict[str, dict[str, str]]:
    """base name -> overload -> how."""
    table: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        status = how(name)
        if status is not None:
            base, _, overload = name.removeprefix("aten::").partition(".")
            if status == "missing" and refused_for(base):
                status = "refused"
            table[base][overload or "default"] = status
    return table


def counts(table: dict[str, dict[str, str]]) -> collections.Counter:
    """How many overloads there are of each kind."""
    return collections.Counter(status for overloads in table.values() for status in overloads.values())
