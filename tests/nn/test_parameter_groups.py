import pytest
import torch
from torch import nn

from adasparse.nn import (
    Entmax,
    EntmaxAttention,
    EntmaxLoss,
    LearnedAlpha,
    LengthScale,
    MultiheadAttention,
    alpha_parameters,
    parameter_groups,
)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alphabet = nn.Embedding(5, 8)
        self.attention = MultiheadAttention(8, 2, length_scale=LengthScale(2, embed_dim=8))
        self.norm = nn.LayerNorm(8)
        self.entmax = Entmax(nn.Parameter(torch.tensor(1.5)))
        self.loss = EntmaxLoss(nn.Parameter(torch.tensor(1.2)))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)


def test_alpha_alone_is_spared_from_weight_decay():
    model = _Model()
    groups = parameter_groups(model, weight_decay=0.3)
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    names = {id(x): name for name, x in model.named_parameters()}
    spared = {names[id(x)] for x in groups[1]["params"]}
    assert spared == {"attention.alpha.alpha_logit", "entmax.alpha", "loss.alpha"}
    decayed = {names[id(x)] for x in groups[0]["params"]}
    expected = {name for name, x in model.named_parameters() if x.requires_grad}
    assert decayed == expected - spared
    assert "alphabet.weight" in decayed


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "RMSprop", "Adafactor"])
def test_decay_moves_everything_but_alpha(optimizer):
    model = MultiheadAttention(8, 2, alpha=LearnedAlpha(2, init=1.8))
    groups = parameter_groups(model, weight_decay=0.5)
    step = getattr(torch.optim, optimizer)(groups, lr=0.1)
    before, weight = model.alpha().detach(), model.in_proj_weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    step.step()
    assert torch.equal(model.alpha(), before)
    assert not torch.equal(model.in_proj_weight, weight)


def test_shared_parameters_come_once_and_empty_groups_not_at_all():
    alpha = LearnedAlpha(2)
    model = nn.ModuleList([EntmaxAttention(2, alpha=alpha), EntmaxAttention(2, alpha=alpha)])
    assert [len(group["params"]) for group in parameter_groups(model, weight_decay=0.1)] == [1]
    assert len(alpha_parameters(model)) == 1
    (group,) = parameter_groups(nn.Linear(2, 2), weight_decay=0.1)
    assert group["weight_decay"] == 0.1
