import copy
import pickle

import pytest
import torch

from adasparse.nn import LearnedAlpha
from support.helpers import randn


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (1.05, 1.4), (1.5, 4.0)])
def test_alpha_follows_the_formula(low, high):
    module = LearnedAlpha(7, init="spread", low=low, high=high)
    with torch.no_grad():
        module.alpha_logit.copy_(randn((7,)) * 3)
    alpha = module()
    x = module.alpha_logit.detach().double().requires_grad_()
    expected = low + (high - low) * x.sigmoid()
    torch.testing.assert_close(alpha.double(), expected, rtol=0, atol=1e-6)
    (by_logit,) = torch.autograd.grad(alpha.sum(), module.alpha_logit)
    (expected_by_logit,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(by_logit.double(), expected_by_logit, rtol=1e-5, atol=0)


@pytest.mark.parametrize("logit", [-80.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 80.0])
def test_gradient_is_alive_and_exact_up_to_the_ends_of_the_range(logit):
    # sigmoid in float32 is 1 from 17 on, and its own gradient then 0
    module = LearnedAlpha(1)
    with torch.no_grad():
        module.alpha_logit.fill_(logit)
    alpha = module()
    assert 1 <= alpha.item() <= 2
    alpha.sum().backward()
    x = torch.tensor(logit, dtype=torch.float64)
    expected = (x.sigmoid() * (-x).sigmoid()).float()
    assert expected > 0
    torch.testing.assert_close(module.alpha_logit.grad[0], expected, rtol=1e-4, atol=0)


def test_no_optimizer_step_leaves_the_range():
    module = LearnedAlpha(2, low=1.2, high=1.7)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e6)
    for sign in (1, 1, -1, -1, -1):
        optimizer.zero_grad()
        (sign * module()).sum().backward()
        optimizer.step()
        assert ((module() >= 1.2) & (module() <= 1.7)).all()


def test_every_way_to_start():
    assert torch.equal(LearnedAlpha(3)(), torch.full((3,), 1.5))
    for values in ([1.1, 1.9], (1.1, 1.9), torch.tensor([1.1, 1.9])):
        torch.testing.assert_close(LearnedAlpha(2, init=values)(), torch.tensor([1.1, 1.9]))
    torch.testing.assert_close(LearnedAlpha(2, init=1.001)(), torch.full((2,), 1.001))
    spread = LearnedAlpha(5, init="spread", low=1.0, high=3.0)()
    torch.testing.assert_close(spread, torch.tensor([1.2, 1.6, 2.0, 2.4, 2.8]))
    torch.manual_seed(0)
    random = LearnedAlpha(2000, init="random", low=1.2, high=1.6)()
    assert ((random > 1.2) & (random < 1.6)).all()
    assert abs(random.mean() - 1.4) < 0.01
    assert abs(random.std() - 0.4 / 12**0.5) < 0.01


def test_reset_goes_back_to_the_start():
    fixed, random = LearnedAlpha(4, init=1.3), LearnedAlpha(4, init="random")
    before = random().detach()
    for module in (fixed, random):
        with torch.no_grad():
            module.alpha_logit.add_(1)
        module.reset_parameters()
    torch.testing.assert_close(fixed(), torch.full((4,), 1.3))
    assert not torch.equal(random(), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_casts_to_half_precision_leave_alpha_in_float32(dtype):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), LearnedAlpha(3, init=[1.1, 1.333, 1.9]))
    before = model[1]().detach()
    model.to(dtype)
    assert model[0].weight.dtype == dtype
    assert model[1].alpha_logit.dtype == torch.float32
    assert torch.equal(model[1](), before)
    assert model.double()[1]().dtype == torch.float64
    assert model.to(device="meta", dtype=dtype)[1].alpha_logit.device.type == "meta"


def test_defaults_of_the_process_do_not_matter():
    torch.set_default_dtype(torch.bfloat16)
    try:
        module = LearnedAlpha(2, init=1.333)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(module(), torch.full((2,), 1.333))


def test_half_precision_weights_that_were_assigned_compute_in_float32():
    module = LearnedAlpha(2)
    state = {"alpha_logit": torch.tensor([0.3, -4.0], dtype=torch.bfloat16)}
    module.load_state_dict(state, assign=True)
    assert module.alpha_logit.dtype == torch.bfloat16
    assert module().dtype == torch.float32
    torch.testing.assert_close(module(), 1 + state["alpha_logit"].float().sigmoid())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module().dtype == torch.float32


def test_meta_device_and_to_empty():
    with torch.device("meta"):
        module = LearnedAlpha(3, init="spread")
    module.to_empty(device="cpu")
    module.reset_parameters()
    torch.testing.assert_close(module(), LearnedAlpha(3, init="spread")())
    assert LearnedAlpha(3, device="meta").alpha_logit.device.type == "meta"


def test_copies_are_equal():
    module = LearnedAlpha(3, init="random")
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(), module())
        assert repr(twin) == repr(module)
    assert [name for name, _ in module.named_parameters()] == ["alpha_logit"]


def test_repr_tells_the_settings():
    assert "3, init=1.5, low=1.0, high=2.0" in repr(LearnedAlpha(3))
    assert "init=(1.2, 1.3)" in repr(LearnedAlpha(2, init=[1.2, 1.3]))
    assert "init=spread" in repr(LearnedAlpha(2, init="spread"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": 1.0}, r"low=1\.0 and high=2\.0; got 1\.0\..*pass a number"),
        ({"init": 2.0}, r"got 2\.0"),
        ({"init": [1.5, float("nan"), 1.5]}, "got nan"),
        ({"init": 1.5, "low": 1.6}, r"low=1\.6 and high=2\.0; got 1\.5"),
        ({"init": [1.5, 1.6]}, "each of 3 heads; got 2"),
        ({"init": "middle"}, "got 'middle'"),
        ({"low": 0.5}, r"1 <= low < high; got 0\.5 and 2\.0"),
        ({"low": 1.5, "high": 1.5}, r"got 1\.5 and 1\.5"),
        ({"high": float("inf")}, r"got 1\.0 and inf"),
    ],
)
def test_errors_quote_what_was_given(options, message):
    with pytest.raises(ValueError, match=message):
        LearnedAlpha(3, **options)


def test_there_is_at_least_one_head():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        LearnedAlpha(0)
