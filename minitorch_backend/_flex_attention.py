"""torch.nn.attention.flex_attention takes devices that it knows by name: ours as the one whose place it takes."""

import torch


def install(backend: str) -> None:
    from torch.nn.attention import flex_attention

    known = flex_attention._validate_device

    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "minitorch":
            known(query, key, value)
        elif backend == "cpu" and (query.requires_grad or key.requires_grad or value.requires_grad):
            raise NotImplementedError(
                "FlexAttention does not support backward on CPU. Please set the input requires_grad to False "
                "or use another device."
            )

    flex_attention._validate_device = validate
