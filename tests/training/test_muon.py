"""Muon beside AdamW: who updates what, what an update is, and going on bit by bit."""

import copy

import pytest
import torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from adasparse.longcontext import LongContextConfig, LongContextForCausalLM
from adasparse.longcontext.train import TaskJob
from adasparse.nn import alpha_parameters
from adasparse.training.muon import BothOptimizers, hidden_matrices, with_muon
from adasparse.training.optimizer_state import load_optimizer, save_optimizer
from adasparse.training.trainer import recipe_arguments
from support.small_tasks import task_recipe


def small_model():
    torch.manual_seed(0)
    return LongContextForCausalLM(
        LongContextConfig(
            vocab_size=12,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            attention="asentmax-adaptive",
        )
    )


def both(model, *, fused=True):
    matrices = {id(x) for x in hidden_matrices(model)}
    weights = list(model.parameters())
    groups = [
        {"params": [x for x in weights if x.ndim > 1], "weight_decay": 0.1},
        {"params": [x for x in weights if x.ndim < 2], "weight_decay": 0.0, "lr": 0.003},
    ]
    optimizer = with_muon(AdamW(groups, lr=0.01, betas=(0.9, 0.98), fused=fused), model)
    assert {id(x) for x in optimizer.param_groups[0]["params"]} == matrices
    return optimizer, LambdaLR(optimizer, lambda step: (step + 1) ** -0.5)


def train(model, optimizer, schedule, *, start, steps):
    for step in range(start, start + steps):
        torch.manual_seed(step)
        tokens = torch.randint(12, (3, 9))
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def test_hidden_matrices_are_those_between_the_layers():
    model = small_model()
    names = {id(x): name for name, x in model.named_parameters()}
    found = {names[id(x)] for x in hidden_matrices(model)}
    assert len(found) == 2 * 7
    assert all(".self_attn." in name or ".mlp." in name for name in found)
    assert all(name.endswith("_proj.weight") for name in found)
    model.model.layers[0].mlp.up_proj.weight.requires_grad_(False)
    assert len(hidden_matrices(model)) == 13


def test_matrices_move_along_orthogonal_ones_and_the_rest_as_with_adamw():
    model, twin = small_model(), small_model()
    optimizer, schedule = both(model)
    plain = AdamW(twin.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.0)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
        group["lr"] = 0.01
    before = copy.deepcopy(model.state_dict())
    train(model, optimizer, schedule, start=0, steps=1)
    train(twin, plain, LambdaLR(plain, lambda step: 1.0), start=0, steps=1)
    matrices = {id(x) for x in hidden_matrices(model)}
    same = twin.state_dict()
    for name, x in model.named_parameters():
        if id(x) not in matrices:
            torch.testing.assert_close(x, same[name], rtol=1e-5, atol=1e-7)
            continue
        moved = (x - before[name]).detach().double() / (0.01 * 0.2 * max(x.shape) ** 0.5)
        sizes = torch.linalg.svdvals(moved)
        assert sizes[: min(x.shape) // 2].min() > 0.5 and sizes.max() < 1.3


@pytest.mark.parametrize("fused", [True, False])
def test_training_goes_on_bit_by_bit(tmp_path, fused):
    one, two = small_model(), small_model()
    parts = both(one, fused=fused)
    train(one, *parts, start=0, steps=3)
    save_optimizer(tmp_path, *parts)
    two.load_state_dict(one.state_dict())
    others = both(two, fused=fused)
    load_optimizer(tmp_path, *others)
    assert others[0].state_dict()["param_groups"] == parts[0].state_dict()["param_groups"]
    train(one, *parts, start=3, steps=3)
    train(two, *others, start=3, steps=3)
    for x, y in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(x, y)


def test_a_closure_is_called_once_and_its_loss_returned():
    model = small_model()
    optimizer, _ = both(model)
    calls = []

    def closure():
        tokens = torch.tensor([[1, 2, 3]])
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        calls.append(loss.item())
        return loss.item()

    before = [x.clone() for x in model.parameters()]
    assert optimizer.step(closure) == calls[0]
    assert len(calls) == 1
    assert not all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))


def test_a_recipe_chooses_the_optimizer(tmp_path):
    recipe = task_recipe(tmp_path, optimizer="muon", alpha_lr_factor=3.0, weight_decay=0.1)
    trainer = TaskJob(recipe).build_trainer(recipe_arguments(recipe))
    optimizer = trainer.create_optimizer()
    assert isinstance(optimizer, BothOptimizers)
    assert trainer.create_optimizer() is optimizer
    first, *_, last = optimizer.param_groups
    assert {id(x) for x in first["params"]} == {id(x) for x in hidden_matrices(trainer.model)}
    # Decay is the product of both, and the same for all matrices.
    assert (first["lr"], first["weight_decay"]) == (2.5 * recipe.learning_rate, 0.1 / 2.5)
    assert {id(x) for x in last["params"]} == {id(x) for x in alpha_parameters(trainer.model)}
    assert last["lr"] == pytest.approx(3 * recipe.learning_rate)
    plain = task_recipe(tmp_path)
    optimizer = TaskJob(plain).build_trainer(recipe_arguments(plain)).create_optimizer()
    assert isinstance(optimizer, AdamW)
    with pytest.raises(ValueError, match="optimizer must be one of adamw, muon; got 'sgd'"):
        task_recipe(tmp_path, optimizer="sgd")


def test_an_older_pytorch_is_told_of(monkeypatch):
    model = small_model()
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ValueError, match=f"needs PyTorch 2.9; this is {torch.__version__[:4]}"):
        both(model)
