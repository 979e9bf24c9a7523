import pytest
import torch
from torch import nn

from adasparse.training.optimizer_state import load_optimizer, save_optimizer


def build(*, fused, amsgrad=False, momentum=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    groups = [
        {"params": [x for x in model.parameters() if x.ndim > 1], "weight_decay": 0.1},
        {
            "params": [x for x in model.parameters() if x.ndim < 2],
            "weight_decay": 0.0,
            "lr": 0.01 / 3,
        },
    ]
    if momentum is not None:
        optimizer = torch.optim.SGD(groups, lr=0.001, momentum=momentum)
    else:
        optimizer = torch.optim.AdamW(
            groups, lr=0.01, betas=(0.9, 0.98), fused=fused, amsgrad=amsgrad
        )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) ** -0.5)
    return model, optimizer, schedule


def train(model, optimizer, schedule, *, start, steps):
    for step in range(start, start + steps):
        torch.manual_seed(step)
        model(torch.randn(7, 4)).square().sum().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def assert_same_state(one, two):
    assert one["param_groups"] == two["param_groups"]
    assert one["state"].keys() == two["state"].keys()
    for index, values in one["state"].items():
        assert values.keys() == two["state"][index].keys()
        for name, value in values.items():
            assert torch.equal(value, two["state"][index][name])
            assert value.dtype == two["state"][index][name].dtype


@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"fused": False},
        {"fused": True, "amsgrad": True},
        {"fused": False, "momentum": 0.9},
    ],
    ids=str,
)
def test_training_goes_on_bit_by_bit(tmp_path, options):
    one = build(**options)
    train(*one, start=0, steps=3)
    save_optimizer(tmp_path, one[1], one[2])
    two = build(**options)
    two[0].load_state_dict(one[0].state_dict())
    load_optimizer(tmp_path, two[1], two[2])
    assert_same_state(two[1].state_dict(), one[1].state_dict())
    assert two[2].state_dict() == one[2].state_dict()
    for parts in (one, two):
        train(*parts, start=3, steps=3)
    for x, y in zip(one[0].parameters(), two[0].parameters(), strict=True):
        assert torch.equal(x, y)


def test_the_same_state_is_the_same_file(tmp_path):
    files = []
    for name in "ab":
        parts = build(fused=True)
        train(*parts, start=0, steps=2)
        (tmp_path / name).mkdir()
        save_optimizer(tmp_path / name, parts[1], parts[2])
        files += list((tmp_path / name).iterdir())
    assert [x.name for x in files] == ["optimizer.safetensors"] * 2
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_optimizer_that_has_not_stepped_is_saved_too(tmp_path):
    _, optimizer, schedule = build(fused=True)
    save_optimizer(tmp_path, optimizer, schedule)
    other = build(fused=True)
    load_optimizer(tmp_path, other[1], other[2])
    assert other[1].state_dict() == optimizer.state_dict()
