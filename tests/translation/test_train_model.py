"""What is trained: the loss, dropout, attention, and how batches make up an update."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import TrainerCallback

from adasparse.integrations.huggingface.measure import current_alpha
from adasparse.training.trainer import recipe_arguments
from adasparse.translation.data import PreparedData
from adasparse.translation.model import PairCollator, TokenLoss, build_model
from adasparse.translation.runs import load_run
from adasparse.translation.score import score
from adasparse.translation.train import DevScorer, TranslationJob, pair_lengths, train
from support.small_runs import log_of, results_of, small_data, small_recipe, small_run


def trainer_of(output, **changes):
    recipe = small_recipe(output, **changes)
    return TranslationJob(recipe).build_trainer(recipe_arguments(recipe))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_loss_is_cross_entropy_with_label_smoothing(smoothing):
    torch.manual_seed(0)
    logits = torch.randn(4, 7, 30, requires_grad=True)
    labels = torch.randint(0, 30, (4, 7)).masked_fill_(torch.rand(4, 7) < 0.3, -100)
    ours = TokenLoss(smoothing)({"logits": logits}, labels)
    (mine,) = torch.autograd.grad(ours, logits)
    exact = logits.detach().double().requires_grad_()
    theirs = F.cross_entropy(exact.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    (expected,) = torch.autograd.grad(theirs, exact)
    assert abs(ours.item() - theirs.item()) < 1e-6
    assert (mine - expected).abs().max() < 1e-7
    loss, tokens = TokenLoss(smoothing), (labels != -100).sum()
    halves = [loss({"logits": logits[i : i + 2]}, labels[i : i + 2], tokens) for i in (0, 2)]
    assert abs(sum(halves).item() - theirs.item()) < 1e-6


def test_batches_are_padded_and_shifted():
    batch = PairCollator(0)([{"input_ids": [5, 6, 1], "labels": [7, 1]},
                             {"input_ids": [8, 1], "labels": [9, 5, 6, 1]}])  # fmt: skip
    assert batch["input_ids"].tolist() == [[5, 6, 1], [8, 1, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[7, 1, -100, -100], [9, 5, 6, 1]]
    assert batch["decoder_input_ids"].tolist() == [[0, 7, 0, 0], [0, 9, 5, 6]]


def test_generation_alone_keeps_keys_and_values():
    """In training a cache would be copies for nothing."""
    model, _ = load_run(small_run())
    tokens = torch.tensor([[5, 6, 1]])
    assert model(input_ids=tokens, decoder_input_ids=tokens).past_key_values is None
    options = {"input_ids": tokens, "max_new_tokens": 3, "return_dict_in_generate": True}
    assert model.generate(**options).past_key_values is not None
    assert model.generate(**options, use_cache=False).past_key_values is None


@pytest.mark.parametrize("attention", ["softmax", "adaptive"])
def test_accumulated_batches_are_one_large_batch(tmp_path, attention):
    """The gradient of an update over two batches is that of all their pairs at once."""
    still = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    trainer = trainer_of(tmp_path / "run", attention=attention, accumulate=2, max_steps=1,
                         max_grad_norm=1e9, **still)  # fmt: skip
    found, batches = {}, list(trainer.get_train_dataloader())

    class Catch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            found.update({name: x.grad.clone() for name, x in learned(model)})

    def learned(model):
        return [(name, x) for name, x in model.named_parameters() if x.requires_grad]

    trainer.add_callback(Catch())
    recipe = trainer.scorer.recipe
    reference = build_model(recipe, TranslationJob(recipe).data.tokenizer).double().train()
    pairs = [pair for batch in trainer._batches for pair in batch]
    assert len(batches) == 2
    assert len({(x["labels"] != -100).sum().item() for x in batches}) == 2  # sizes differ
    inputs = trainer.data_collator([trainer.train_dataset[i] for i in pairs])
    labels = inputs.pop("labels")
    logits = reference(**inputs).logits.flatten(0, 1)
    F.cross_entropy(logits, labels.flatten(), label_smoothing=0.1).backward()
    trainer.train()
    assert len(found) > 20
    for name, x in learned(reference):
        assert (found[name] - x.grad).abs().max() < 1e-5, name


def test_dropout_is_active_in_training_only(tmp_path):
    recipe = small_recipe(tmp_path, dropout=0.3, attention_dropout=0.2, activation_dropout=0.4)
    data = TranslationJob(recipe).data
    model = build_model(recipe, data.tokenizer)
    config = model.config
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.3, 0.2, 0.4)
    inputs = PairCollator(0)([data.train[0], data.train[1]])
    labels = inputs.pop("labels")
    for is_training in (True, False):
        model.train(is_training)
        one, two = (model(**inputs).logits for _ in range(2))
        assert torch.equal(one, two) != is_training
    assert labels.shape == one.shape[:2]


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
@pytest.mark.parametrize("attention", ["softmax", "adaptive"])
def test_each_dropout_does_something_alone(tmp_path, name, attention):
    none = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    recipe = small_recipe(tmp_path, attention=attention, **{**none, name: 0.5})
    data = TranslationJob(recipe).data
    model = build_model(recipe, data.tokenizer).train()
    inputs = PairCollator(0)([data.train[0]])
    inputs.pop("labels")
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)


def test_random_numbers_belong_to_the_batch(tmp_path):
    """The loss of a batch does not depend on what was drawn before it."""
    trainer = trainer_of(tmp_path / "run")
    trainer.create_optimizer()
    batch = next(iter(trainer.get_train_dataloader()))
    losses = []
    for draws in (0, 5):
        torch.rand(draws)
        trainer._micro_batch = (-1, 0)
        losses.append(trainer.training_step(trainer.model, dict(batch), torch.tensor(10)).item())
    assert losses[0] == losses[1]
    assert trainer.training_step(trainer.model, dict(batch), torch.tensor(10)).item() != losses[0]


def test_the_same_seed_gives_the_same_weights_whatever_the_attention(tmp_path):
    tokenizer = TranslationJob(small_recipe(tmp_path)).data.tokenizer
    dense, sparse = (build_model(small_recipe(tmp_path, attention=x), tokenizer).state_dict()
                     for x in ("softmax", "adaptive"))  # fmt: skip
    assert all(torch.equal(sparse[name], x) for name, x in dense.items())
    assert any("alpha" in name for name in sparse.keys() - dense.keys())


@pytest.mark.parametrize("attention", ["softmax", "entmax", "adaptive"])
def test_attention_is_what_the_recipe_says(attention):
    model, _ = load_run(small_run(attention))
    alpha = current_alpha(model)
    learned = [name for name, _ in model.named_parameters() if "alpha" in name]
    assert bool(alpha) == (attention != "softmax")
    assert len(learned) == (3 if attention == "adaptive" else 0)
    if attention == "entmax":
        assert all(x.tolist() == [1.5, 1.5] for x in alpha.values())
    if attention == "adaptive":
        assert all(len(set(x.tolist())) == 2 for x in alpha.values())
        alphas = [x["alpha"] for x in log_of(small_run()) if "loss" in x]
        assert len(alphas) == 4
        assert alphas[0] != alphas[-1]
        assert alphas[0].keys() == alpha.keys()


def test_tied_heads_have_one_alpha_per_module(tmp_path):
    run = train(small_recipe(tmp_path / "run", tie_heads=True, max_steps=3))
    model, _ = load_run(run)
    assert [x.numel() for name, x in model.named_parameters() if "alpha" in name] == [1, 1, 1]
    values = [x.tolist() for x in current_alpha(model).values()]
    assert all(len(x) == 2 and len(set(x)) == 1 and x[0] != 1.5 for x in values)


def test_alpha_has_no_weight_decay(tmp_path):
    trainer = trainer_of(tmp_path / "run", weight_decay=0.5)
    decayed = trainer.get_decay_parameter_names(trainer.model)
    assert decayed
    assert not [name for name in decayed if "alpha" in name or "norm" in name or "bias" in name]


def test_scores_are_those_of_the_raw_references(tmp_path, monkeypatch):
    data = PreparedData.open(small_data())
    data.dev_target[:] = [f"  {x} … " for x in data.dev_target]  # as nobody writes
    scorer = DevScorer(data, small_recipe(tmp_path))
    given = []

    def spy(hypotheses, references):
        given.extend(references)
        return score(hypotheses, references)

    monkeypatch.setattr("adasparse.translation.train.score", spy)
    model, _ = load_run(small_run())
    found = scorer.scores(model)
    assert given == data.dev_target
    assert found.keys() == {"loss", "bleu", "chrf"}


def test_the_dev_loss_is_the_mean_over_all_tokens():
    data, model = PreparedData.open(small_data()), load_run(small_run())[0].train()
    losses = []
    for batch_tokens in (8, 1000):
        recipe = small_recipe(small_run(), batch_tokens=batch_tokens)
        losses.append(DevScorer(data, recipe).loss(model))
    inputs = PairCollator(0)([data.dev[i] for i in range(len(data.dev))])
    labels = inputs.pop("labels")
    assert model.training
    with torch.no_grad():
        logits = model.eval()(**inputs).logits.double()
    exact = F.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()
    assert max(abs(x - exact) for x in losses) < 1e-5


def test_the_best_is_chosen_by_the_monitor(tmp_path):
    by_bleu = results_of(small_run())
    changes = {"monitor": "loss", "max_steps": 8, "eval_steps": 3}
    by_loss = results_of(train(small_recipe(tmp_path / "run", **changes)))
    for results, name, choose in ((by_bleu, "bleu", max), (by_loss, "loss", min)):
        scores = {key: x[name] for key, x in results["candidates"].items()}
        assert scores[results["model"]] == choose(scores.values())
        assert len(scores) > 1


@pytest.mark.parametrize("attention", ["softmax", "entmax", "adaptive"])
def test_the_loss_falls(attention):
    losses = [x["loss"] for x in log_of(small_run(attention)) if "loss" in x]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.5


def test_bfloat16_trains(tmp_path):
    seen = set()

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, model, **kwargs):
            layer = next(x for x in model.modules() if isinstance(x, nn.Linear))
            layer.register_forward_hook(lambda module, args, out: seen.add(out.dtype))

        def close(self):
            pass

    run = train(small_recipe(tmp_path / "run", bf16=True, max_steps=3), progress=Watch())
    assert torch.bfloat16 in seen
    weights = load_run(run)[0].state_dict()
    assert all(x.dtype == torch.float32 for x in weights.values())
    assert next(x["loss"] for x in log_of(run) if "loss" in x) < 8


def test_pairs_that_are_too_long_are_left_out_and_told(tmp_path):
    data, messages = PreparedData.open(small_data()), []
    limit = int(pair_lengths(data.dev).max())
    too_long = int((pair_lengths(data.train) > limit).sum())
    assert too_long > 0
    recipe = small_recipe(tmp_path / "x", max_positions=limit)
    trainer = TranslationJob(recipe).build_trainer(recipe_arguments(recipe))
    assert len(trainer.train_dataset) == len(data.train) - too_long
    assert max(len(x["input_ids"]) for x in trainer.train_dataset) <= limit
    train(small_recipe(tmp_path / "run", max_positions=limit), report=messages.append)
    assert (
        messages[0] == f"{too_long} training pairs are longer than max_positions and are left out."
    )


def test_too_few_positions_are_refused(tmp_path, monkeypatch):
    data = PreparedData.open(small_data())
    monkeypatch.setattr(PreparedData, "open", lambda folder: data)
    data.dev.__dict__["source_lengths"] = np.array([3, 3, 41, 3, 3, 3, 42, 3])
    message = "max_positions=40 is too small for 2 of the development sentences"
    with pytest.raises(ValueError, match=message):
        TranslationJob(small_recipe(tmp_path / "run", max_positions=40)).identity()
    data.train.__dict__["source_lengths"] = data.train.source_lengths + 60
    with pytest.raises(ValueError, match="too small for all of the training pairs; the shortest n"):
        TranslationJob(small_recipe(tmp_path / "run", max_positions=40)).identity()
