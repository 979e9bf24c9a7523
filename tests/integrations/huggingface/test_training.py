"""Training: weight decay, annealing, logs, adapters, checkpointing, precision, DDP, compilation."""

import os

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

from adasparse.integrations.huggingface import (
    SparsityCallback,
    SparsityConfig,
    SparsityTrainerMixin,
    inspect_heads,
    set_step,
    sparsify,
)
from adasparse.integrations.huggingface.heads import sparse_heads
from adasparse.nn import parameter_groups
from support.architectures import ARCHITECTURES, VOCABULARY, inputs_for, tokens
from support.helpers import backward_distributed


class SparseTrainer(SparsityTrainerMixin, Trainer):
    pass


def sparse(name, **settings):
    model = ARCHITECTURES[name].build()
    sparsify(model, SparsityConfig(**settings))
    return model


def examples(count=8, length=6):
    rows = tokens(count, length)
    return [{"input_ids": row, "labels": row} for row in rows]


def arguments(directory, cls=TrainingArguments, **options):
    return cls(
        output_dir=str(directory),
        **{
            "max_steps": 4,
            "per_device_train_batch_size": 2,
            "logging_steps": 2,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **options,
        },
    )


def gradients(model):
    return {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}


def loss_of(model, inputs, **options):
    logits = model(**inputs, **options).logits.float()
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, VOCABULARY), inputs["input_ids"][:, 1:].reshape(-1)
    )


@pytest.mark.parametrize("how", ["fused", "foreach", "data"])
def test_a_changed_alpha_counts_at_once(how):
    """Fused optimizers change parameters without telling their version counters."""
    model, inputs = sparse("gpt2").eval(), inputs_for("gpt2")
    exponents = [heads.alpha.alpha_logit for heads in sparse_heads(model).values()]
    with torch.no_grad():
        before = model(**inputs).logits
    for x in exponents:
        x.grad = torch.ones_like(x)
        if how == "data":
            x.data = x.data - 1
    if how != "data":
        torch.optim.AdamW(exponents, lr=1.0, **{how: True}).step()
    with torch.no_grad():
        after = model(**inputs).logits
    with_gradients = model(**inputs).logits
    assert not torch.allclose(after, before)
    assert torch.equal(after, with_gradients)


def test_trainer_does_not_decay_alpha(tmp_path):
    """Decay pulls every alpha to the middle of its range; the plain Trainer applies it."""
    model = sparse("llama")
    names = [name for name, _ in model.named_parameters() if "alpha" in name]
    args = arguments(tmp_path, weight_decay=0.1)
    plain = Trainer(model, args).get_decay_parameter_names(model)
    assert set(names) <= set(plain)
    trainer = SparseTrainer(model, args)
    assert set(plain) - set(trainer.get_decay_parameter_names(model)) == set(names)
    groups = trainer.create_optimizer().param_groups
    spared = {id(x) for group in groups if group["weight_decay"] == 0 for x in group["params"]}
    assert all(id(x) in spared for name, x in model.named_parameters() if name in names)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_parameter_groups_know_the_exponents_of_a_sparse_model():
    model = sparse("t5")
    spared = parameter_groups(model, weight_decay=0.1)[1]
    assert spared["weight_decay"] == 0
    wanted = {id(x) for name, x in model.named_parameters() if "alpha" in name}
    assert {id(x) for x in spared["params"]} == wanted


def test_alpha_and_density_of_every_head_go_to_tensorboard(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    model = sparse("llama", init_alpha=1.7)
    args = arguments(tmp_path, report_to=["tensorboard"], learning_rate=0.1)
    SparseTrainer(model, args, train_dataset=examples()).train()
    files = EventAccumulator(str(tmp_path / "logs")).Reload()
    names = [f"model.layers.{i}.self_attn/{j}" for i in range(2) for j in range(4)]
    for name in names:
        alphas = files.Scalars(f"train/alpha/{name}")
        assert [x.step for x in alphas] == [2, 4]
        assert alphas[0].value != alphas[1].value
        assert all(0 < x.value <= 1 for x in files.Scalars(f"train/density/{name}"))
    assert any(files.Scalars(f"train/density/{name}")[0].value < 1 for name in names)
    assert "density/" not in capsys.readouterr().out
    last = sparse_heads(model)["model.layers.1.self_attn"].exponents()
    logged = [files.Scalars(f"train/alpha/{name}")[-1].value for name in names[4:]]
    assert logged == pytest.approx(last.tolist())


@pytest.mark.parametrize("strategy", ["no", "epoch"])
def test_logging_follows_the_strategy(strategy, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    args = arguments(
        tmp_path,
        report_to=["tensorboard"],
        logging_strategy=strategy,
        max_steps=-1,
        num_train_epochs=2,
    )
    SparseTrainer(sparse("llama"), args, train_dataset=examples()).train()
    files = EventAccumulator(str(tmp_path / "logs")).Reload()
    keys = [key for key in files.Tags()["scalars"] if "density" in key]
    assert bool(keys) == (strategy == "epoch")
    for key in keys:
        assert [x.step for x in files.Scalars(key)] == [4, 8]


def test_alpha_is_annealed_by_the_trainer(tmp_path):
    model = sparse("llama", alpha="annealed", final_alpha=2.0, anneal_steps=4)
    seen = []

    class Watch(SparsityCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            seen.append(next(iter(sparse_heads(model).values())).exponents().item())
            super().on_step_end(args, state, control, model=model, **kwargs)

    args = arguments(tmp_path, max_steps=6)
    Trainer(model, args, train_dataset=examples(), callbacks=[Watch()]).train()
    assert seen == [1.0, 1.25, 1.5, 1.75, 2.0, 2.0]


def test_annealing_starts_at_softmax_and_ends_at_its_target():
    model = ARCHITECTURES["bert"].build()
    inputs = inputs_for("bert")
    dense = model(**inputs).logits
    sparsify(model, SparsityConfig(alpha="annealed", final_alpha=1.6, anneal_steps=100))
    assert torch.allclose(model(**inputs).logits, dense, atol=1e-5)
    set_step(model, 1)
    near = model(**inputs).logits
    assert 0 < (near - dense).abs().max() < 0.05 * dense.abs().max()
    set_step(model, 1000)
    annealed = model(**inputs).logits
    other = sparse("bert", alpha="fixed", init_alpha=1.6)
    assert torch.allclose(annealed, other(**inputs).logits, atol=1e-6)


def test_label_smoothing_still_shifts_labels(tmp_path):
    """The Trainer goes by the name of the class to know a causal model; that name is kept."""
    model = sparse("llama")
    args = arguments(tmp_path, label_smoothing_factor=0.1)
    batch = {"input_ids": tokens(2, 6), "labels": tokens(2, 6)}
    smooth = SparseTrainer(model, args).compute_loss(model, dict(batch))
    logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(
        logits.reshape(-1, VOCABULARY), batch["labels"][:, 1:].reshape(-1), label_smoothing=0.1
    )
    assert smooth.item() == pytest.approx(expected.item(), rel=1e-4)


def test_sequence_to_sequence_training_resumes_where_it_was(tmp_path):
    class SparseSeq2SeqTrainer(SparsityTrainerMixin, Seq2SeqTrainer):
        pass

    def trainer(directory, **options):
        torch.manual_seed(0)
        return SparseSeq2SeqTrainer(
            sparse("marian"),
            arguments(
                directory,
                Seq2SeqTrainingArguments,
                max_steps=4,
                save_strategy="steps",
                save_steps=2,
                label_smoothing_factor=0.1,
                learning_rate=1e-2,
                **options,
            ),
            train_dataset=[{**x, "decoder_input_ids": x["labels"]} for x in examples()],
        )

    whole = trainer(tmp_path / "a")
    whole.train()
    resumed = trainer(tmp_path / "b")
    resumed.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-2"))
    expected = dict(whole.model.named_parameters())
    for name, parameter in resumed.model.named_parameters():
        assert torch.equal(parameter, expected[name]), name


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_gradient_checkpointing_changes_nothing(name, reentrant):
    model = sparse(name, length_scale="adaptive").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for heads in sparse_heads(model):
        model.get_submodule(heads).dropout = 0.0
    inputs = inputs_for(name, padding="right")

    def run():
        model.zero_grad()
        model(**inputs).logits.square().mean().backward()
        return gradients(model)

    expected = run()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    actual = run()
    assert {x for x in actual if "entmax" in x} == {x for x in expected if "entmax" in x}
    for key, x in actual.items():
        assert torch.allclose(x, expected[key], atol=1e-6, rtol=1e-4), key


def test_dropout_is_applied_in_training_only():
    options = {**ARCHITECTURES["llama"].options, "attention_dropout": 0.5}
    model = type(ARCHITECTURES["llama"])("LlamaForCausalLM", "LlamaConfig", options, ()).build()
    sparsify(model)
    inputs = inputs_for("llama")
    calm = model(**inputs).logits
    assert torch.equal(model(**inputs).logits, calm)
    model.train()
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)
    weights = model(**inputs, output_attentions=True).attentions
    assert torch.allclose(weights[0].sum(-1), torch.ones(()))


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2", "t5"])
def test_autocast_trains_exponents_in_full_precision(name):
    model = sparse(name, length_scale="adaptive")
    inputs = inputs_for(name, padding="right")
    full = model(**inputs).logits
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(**inputs).logits
    assert (logits.float() - full).abs().mean() < 0.1 * full.abs().mean()
    logits.float().square().mean().backward()
    for heads in sparse_heads(model).values():
        assert heads.alpha.alpha_logit.grad.dtype == torch.float32
        assert (heads.alpha.alpha_logit.grad != 0).any()


def test_adapters_train_and_keep_alpha(tmp_path):
    base = sparse("llama")
    torch.manual_seed(0)
    config = LoraConfig(r=2, modules_to_save=["entmax"])  # targets by the type of the model
    model = get_peft_model(base, config)
    trainable = [name for name, x in model.named_parameters() if x.requires_grad]
    assert sum("alpha_logit" in name for name in trainable) == 2
    assert sum("lora" in name for name in trainable) == 8
    optimizer = torch.optim.SGD(parameter_groups(model, weight_decay=0.0), lr=0.3)
    inputs = inputs_for("llama")
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()
    alphas = [x.exponents() for x in sparse_heads(model).values()]
    assert len(alphas) == 2
    assert all((x != 1.5).all() for x in alphas)
    expected = model(**inputs).logits
    assert set(inspect_heads(model, inputs)) == set(sparse_heads(model))
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(sparse("llama"), tmp_path)
    assert torch.equal(again(**inputs).logits, expected)
    merged = again.merge_and_unload()
    assert torch.allclose(merged(**inputs).logits, expected, atol=1e-4)


def test_distributed_training_sees_every_gradient(tmp_path):
    model = sparse("llama", length_scale="per_head")
    inputs = inputs_for("llama")
    for _ in range(2):
        loss_of(model, inputs).backward()
    expected = gradients(model)
    model.zero_grad()
    backward_distributed(model, lambda wrapped: loss_of(wrapped, inputs), tmp_path)
    for name, x in gradients(model).items():
        assert torch.allclose(x, expected[name], atol=1e-7), name


@pytest.mark.skipif(os.environ.get("TORCHDYNAMO_DISABLE") == "1", reason="no compiler")
@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_exporting"),
    reason="transformers asks for torch.compiler.is_exporting when compiled; torch 2.6 has none",
)
@pytest.mark.parametrize(
    ("name", "scale"), [("llama", "adaptive"), pytest.param("bert", None, marks=pytest.mark.slow)]
)
def test_compiled_models_give_the_same(name, scale):
    model = sparse(name, length_scale=scale)
    inputs = inputs_for(name, padding="right")
    expected = model(**inputs).logits
    expected.square().mean().backward()
    wanted = gradients(model)
    model.zero_grad()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    actual = compiled(**inputs).logits
    actual.square().mean().backward()
    assert torch.allclose(actual, expected, atol=1e-4, rtol=1e-4)
    for key, x in gradients(model).items():
        assert torch.allclose(x, wanted[key], atol=1e-5, rtol=1e-3), key


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_density_is_that_of_the_weights(name):
    model = sparse(name, init_alpha=1.8)
    inputs = inputs_for(name, padding=None if name == "vit" else "right")
    summary = inspect_heads(model, inputs)
    assert set(summary) == set(sparse_heads(model))
    output = model(**inputs, output_attentions=True)
    fields = [field for field in output if "attentions" in field]
    used = torch.stack([(x != 0).sum((0, 2, 3)) for f in fields for x in output[f]])
    by_density = {round(x, 6) for heads in summary.values() for x in heads.density.tolist()}
    assert all(0 < x <= 1 for x in by_density)
    # Those that see every key of every sequence can be checked without knowing masks.
    if name == "vit":
        total = output.attentions[0][:, 0].numel()
        assert by_density == {round(x, 6) for x in (used.double() / total).flatten().tolist()}
    for heads in summary.values():
        assert torch.allclose(heads.alpha, torch.full((4,), 1.8))
