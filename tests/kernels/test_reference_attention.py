"""The oracle itself, against PyTorch's softmax attention and finite differences."""

import pytest
import torch
from torch.autograd import Function, gradcheck

from adasparse.kernels import reference
from adasparse.kernels.problem import AttentionProblem
from support.attention_case import problem_of, tensors
from support.helpers import assert_near, randn


@pytest.mark.parametrize("is_causal", [False, True])
def test_at_alpha_one_it_is_softmax_attention(is_causal):
    x = tensors(2, 4, 5, 7, 3, g=2, dtype=torch.float64)
    problem = problem_of(*x, alpha=1.0, is_causal=is_causal)
    output, _ = reference.attention_forward(problem, keep=False)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *x, is_causal=is_causal, enable_gqa=True
    )
    assert_near(output, wanted)


class _Reference(Function):
    @staticmethod
    def forward(ctx, query, key, value, alpha, mask, slopes, rest):
        problem = AttentionProblem(
            query=query, key=key, value=value, alpha=alpha, mask=mask, slopes=slopes, **rest
        )
        ctx.problem = problem
        output, ctx.saved = reference.attention_forward(problem, keep=True)
        return output

    @staticmethod
    def backward(ctx, grad):
        by = reference.attention_backward(ctx.problem, ctx.saved, grad)
        return by.query, by.key, by.value, by.alpha, by.mask, by.slopes, None


@pytest.mark.parametrize(("alpha", "is_causal"), [(1.00001, False), (1.5, True), (2.7, False)])
def test_gradients(alpha, is_causal):
    query, key, value = tensors(2, 4, 5, 7, 3, g=2, e=2, dtype=torch.float64)
    rest = {
        "scale": 0.6,
        "key_lengths": torch.tensor([7, 4]),
        "seed": torch.tensor(17),
        "dropout_p": 0.2,
        "is_causal": is_causal,
    }
    inputs = (
        query,
        key,
        value,
        alpha + 0.1 * torch.arange(4, dtype=torch.float64).reshape(1, 4, 1, 1),
        randn((2, 1, 5, 7), dtype=torch.float64, seed=3),
        torch.tensor([0.1, 0.2, 0.0, 0.3], dtype=torch.float64),
    )
    inputs = [x.requires_grad_() for x in inputs]
    assert gradcheck(lambda *x: _Reference.apply(*x, rest), inputs, fast_mode=True)
