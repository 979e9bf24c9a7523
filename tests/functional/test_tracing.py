"""Attention traced by torch.jit and compiled with dynamic sizes."""

import warnings

import pytest
import torch

from adasparse.functional import entmax, entmax_attention, entmax_loss
from adasparse.nn import EntmaxAttention


def traced(function, example):
    """Trace with the check; only what PyTorch says about tracing itself is allowed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit.*")
        return torch.jit.trace(function, example, check_trace=True)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("with_grad", [False, True])
def test_traced_attention(with_grad, backend):
    """Kernels that read addresses left uninitialized memory in a trace without gradients."""
    torch.manual_seed(0)

    def attend(x):
        return entmax_attention(x, x, x, is_causal=True, backend=backend)

    x = torch.randn(2, 3, 7, 8, requires_grad=with_grad)
    with torch.set_grad_enabled(with_grad):
        trace = traced(attend, (x,))
    other = torch.randn(2, 3, 7, 8)
    for _ in range(3):
        torch.testing.assert_close(trace(other), attend(other))


@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("alpha", [None, 1.7])
def test_traced_module(alpha, with_grad):
    torch.manual_seed(1)
    module = EntmaxAttention(4, alpha=alpha).eval()
    inputs, others = ([torch.randn(2, 4, 5, 8) for _ in range(3)] for _ in range(2))
    with torch.set_grad_enabled(with_grad):
        trace = traced(module, tuple(inputs))
    torch.testing.assert_close(trace(*others), module(*others))


def test_traced_entmax_and_loss():
    scores, target = torch.randn(4, 6), torch.tensor([0, 5, 2, 1])
    other = torch.randn(4, 6)
    with torch.no_grad():
        trace = traced(lambda s: entmax(s, 1.7), (scores,))
        loss = traced(lambda s: entmax_loss(s, target, 1.7), (scores,))
        torch.testing.assert_close(trace(other), entmax(other, 1.7))
        torch.testing.assert_close(loss(other), entmax_loss(other, target, 1.7))


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="torch 2.6 takes a length that is compared with a number for that number",
)
def test_compiled_with_dynamic_length_and_a_mask_of_static_size():
    """Sizes were compared by identity: 12 is no member of (1, s0)."""

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=None)
    def attend(x, mask):
        return entmax_attention(x, x, x, attn_mask=mask)

    for n in (12, 10):
        x = torch.randn(1, 2, n, 4)
        torch._dynamo.mark_dynamic(x, 2) if n == 10 else None
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        torch.testing.assert_close(attend(x, mask), entmax_attention(x, x, x, attn_mask=mask))

    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def attend_padded(x, mask):
        return entmax_attention(x, x, x, attn_mask=mask)

    for n in (9, 6):
        x = torch.randn(2, 2, n, 4)
        mask = torch.ones(2, 1, 1, n, dtype=torch.bool)
        mask[..., -2:] = False
        torch._dynamo.mark_static(mask)
        torch.testing.assert_close(
            attend_padded(x, mask), entmax_attention(x, x, x, attn_mask=mask)
        )


def test_compiled_with_a_scale_that_is_symbolic():
    """A number that modules hold is not constant under ``dynamic=True``; its check was no graph."""
    torch._dynamo.reset()

    class Attend(torch.nn.Module):
        scale = 0.25

        def forward(self, x):
            return entmax_attention(x, x, x, scale=self.scale)

    module = Attend()
    module.scale = 0.3
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (9, 6):
        x = torch.randn(2, 2, n, 4)
        torch.testing.assert_close(compiled(x), module(x))
