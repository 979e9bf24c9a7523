import torch

from adasparse import entmax, entmax_loss
from adasparse.nn import Entmax, EntmaxLoss
from support.helpers import assert_near, randn


def test_entmax_module_is_the_function():
    scores = randn((3, 4, 5))
    assert torch.equal(Entmax(alpha=1.3, dim=1)(scores), entmax(scores, 1.3, 1))
    assert "alpha=1.3, dim=1" in repr(Entmax(alpha=1.3, dim=1))


def test_a_parameter_is_learned_and_a_tensor_is_a_buffer():
    learned = Entmax(torch.nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in learned.named_parameters()] == ["alpha"]
    learned(randn((3, 5))).square().sum().backward()
    assert learned.alpha.grad.abs() > 0
    fixed = Entmax(torch.full((3, 1), 1.5))
    assert list(fixed.state_dict()) == ["alpha"]
    assert not list(fixed.parameters())


def test_loss_module_is_the_function():
    scores, target = randn((4, 6)), torch.tensor([0, 1, -1, 5])
    weight = randn((6,), seed=1).abs()
    module = EntmaxLoss(1.2, ignore_index=-1, reduction="sum", label_smoothing=0.1, weight=weight)
    expected = entmax_loss(
        scores, target, 1.2, ignore_index=-1, reduction="sum", label_smoothing=0.1, weight=weight
    )
    assert_near(module(scores, target), expected)
    alpha = torch.nn.Parameter(torch.tensor(1.5))
    EntmaxLoss(alpha)(scores, target.clamp(min=0)).backward()
    assert alpha.grad.abs() > 0
