import pytest
import torch
from torch import nn

from adasparse.nn import EntmaxAttention, LearnedAlpha, alpha_penalty, density_penalty
from support.helpers import randn


def test_alpha_penalty_is_the_mean_over_all_heads():
    model = nn.ModuleList(
        [
            EntmaxAttention(2, alpha=LearnedAlpha(2, init=[1.1, 1.4])),
            nn.Linear(2, 2),
            EntmaxAttention(3, alpha=LearnedAlpha(3, init=1.5, high=3.0)),
            EntmaxAttention(3, alpha=1.5),
        ]
    )
    expected = (0.9**2 + 0.6**2 + 3 * 1.5**2) / 5
    assert alpha_penalty(model).item() == pytest.approx(expected, rel=1e-5)
    expected = (0.2**2 + 0.1**2 + 3 * 0.2**2) / 5
    assert alpha_penalty(model, target=1.3).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("target", "end"), [(None, 2.0), (1.2, 1.2)])
def test_alpha_penalty_pulls_alpha_to_its_target(target, end):
    model = EntmaxAttention(4, alpha=LearnedAlpha(4, init="spread"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        alpha_penalty(model, target=target).backward()
        optimizer.step()
    torch.testing.assert_close(model.alpha(), torch.full((4,), end), rtol=0, atol=0.05)


def test_tied_heads_count_once():
    alpha = LearnedAlpha(1, init=1.5)
    model = nn.ModuleList([EntmaxAttention(4, alpha=alpha), EntmaxAttention(4, alpha=alpha)])
    assert alpha_penalty(model).item() == pytest.approx(0.25)


def test_density_penalty_brings_heads_to_the_density_wanted():
    attention = EntmaxAttention(2, alpha=LearnedAlpha(2, init=[1.1, 1.9]))
    x = randn((4, 2, 40, 16))
    optimizer = torch.optim.Adam(attention.parameters(), lr=0.05)
    for _ in range(150):
        density = (attention.weights(x, x) > 0).float().mean((0, 2, 3))
        optimizer.zero_grad()
        density_penalty(attention.alpha(), density, target=0.3).backward()
        optimizer.step()
    torch.testing.assert_close(density, torch.full((2,), 0.3), rtol=0, atol=0.05)


def test_density_penalty_has_the_gradient_it_states():
    alpha = torch.tensor([1.5, 1.5], requires_grad=True)
    density_penalty(alpha, torch.tensor([0.5, 0.1]), target=0.2).backward()
    torch.testing.assert_close(alpha.grad, torch.tensor([-0.15, 0.05]))


def test_errors_quote_what_was_given():
    with pytest.raises(ValueError, match="got Linear without any"):
        alpha_penalty(nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"got \(3,\) and \(2,\)"):
        density_penalty(torch.ones(2), torch.ones(3), target=0.5)
