"""The fastest way to the output of one attention call of a long-context model."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from adasparse.integrations.calls import AttentionCall


def attend(call: AttentionCall) -> Tensor:
    """Return the output ``(b, h, q, e)`` without materializing the weights.

    Softmax without bias and mask goes to PyTorch. With these PyTorch would need a matrix, and twice
    the time at 2048 tokens; ``entmax_attention`` with an alpha of 1 is the same softmax.
    """
    is_softmax = isinstance(call.alpha, float) and call.alpha == 1
    if is_softmax and call.mask is None and call.slopes is None and not call.adapts_temperature:
        return scaled_dot_product_attention(
            call.query, call.key, call.value, is_causal=call.is_causal, enable_gqa=True
        )
    return call.output()
