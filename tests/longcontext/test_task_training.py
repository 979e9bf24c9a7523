"""Trainings on tasks: their data, their folders, and going on after an interruption."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, TrainerCallback

from adasparse.longcontext import find_task
from adasparse.longcontext.recipe import TaskRecipe
from adasparse.longcontext.runs import load_task_run
from adasparse.longcontext.sweep import read_evaluations, run_one, sweep_recipes
from adasparse.longcontext.task_eval import evaluate_run, length_multiples
from adasparse.longcontext.tasks import MultiQueryRecall
from adasparse.longcontext.train import TaskCollator, TaskJob, TaskScorer, train_task
from adasparse.training import dry_run, read_log, read_recipe
from adasparse.training.trainer import recipe_arguments
from support.small_runs import command, log_of, run
from support.small_tasks import SETTINGS, task_file, task_recipe, task_run


class Breaks(TrainerCallback):
    """Ends training in a way that nothing was prepared for."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise RuntimeError("broken")

    def close(self):
        pass


def test_recipe_tells_all_mistakes_at_once():
    with pytest.raises(ValueError, match="The recipe has mistakes: ") as caught:
        TaskRecipe(output="x", task="dance", width=30, heads=4, learning_rate=-1, keep=1)
    for complaint in (
        "task must be one of ['sort', 'copy'",
        "got 'dance'",
        "heads must divide width if head_dim is not given; got 4 and 30",
        "learning_rate must be above 0 and at most 1,000; got -1",
        "keep must be at least 2; got 1",
    ):
        assert complaint in str(caught.value)
    assert "num_attention_heads" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"min_length": 9, "max_length": 8}, "got 9 and 8"),
        ({"task": "2back", "min_length": 2}, "at least 3 for 2back"),
        ({"initializer_range": 2.0}, "above 0 and at most 1; got 2.0"),
        (
            {"eval_lengths": (10**9,)},
            r"eval_lengths must be .* and at most 1,048,576; got \[10{9}\]",
        ),
        ({"task": "sort-999999999"}, "the size of its alphabet, at most 1,000,000, such as"),
        ({"eval_lengths": (0, 4)}, r"eval_lengths must be at least 1 for copy .*; got \[0, 4\]"),
        ({"look_alikes": 0.5}, r"look_alikes must be 0 for copy; got 0\.5"),
        ({"task": "mqmtar", "look_alikes": 2.0}, r"look_alikes must be between 0 and 1; got 2\.0"),
        ({"few_queries_steps": 3}, "few_queries_steps must be 0 for copy; got 3"),
        ({"task": "mqmtar", "few_queries_steps": -1}, "few_queries_steps must be at least 0"),
        ({"attention": "loud"}, "got 'loud'"),
        ({"attention": "adaptive", "alpha": 2.0}, "strictly between 1 and 2; got 2.0"),
        ({"schedule": "flat"}, "schedule must be one of inverse-sqrt, linear, cosine"),
        ({"average": 3}, "got keep=2 and average=3"),
    ],
    ids=str,
)
def test_recipe_refuses(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        task_recipe("x", **changes)


def test_easier_examples_are_trained_with_and_not_scored():
    lengths = {"min_length": 16, "max_length": 32}
    recipe = task_recipe("x", task="mqmtar", look_alikes=0.25, few_queries_steps=3, **lengths)
    assert recipe.training_task == MultiQueryRecall(look_alikes=0.25)
    assert recipe.first_tasks == [
        MultiQueryRecall(look_alikes=0.25, num_queries=i) for i in (1, 2, 3, 4)
    ]
    assert TaskScorer(recipe).task == MultiQueryRecall()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_first_updates_ask_for_fewer_keys(tmp_path, accumulate):
    recipe = task_recipe(
        tmp_path,
        task="mqmtar",
        min_length=16,
        max_length=32,
        few_queries_steps=3,
        accumulate=accumulate,
    )
    trainer = TaskJob(recipe).build_trainer(recipe_arguments(recipe))
    asked = [set(((x["labels"] >= 0).sum(1) // 2).tolist()) for x in trainer.get_train_dataloader()]
    easy = 3 * accumulate
    assert asked == [{i % 4 + 1 if i < easy else 4} for i in range(recipe.max_steps * accumulate)]


def test_lengths_are_the_published_ones_unless_given():
    recipe = task_recipe("x", min_length=None, max_length=None)
    assert (recipe.lengths, recipe.dev_lengths) == ((32, 64), (64, 128))
    assert task_recipe("x", eval_lengths=(7,)).dev_lengths == (7,)
    changes = ["output=x", "eval_lengths=[7, 9]"]
    assert read_recipe(TaskRecipe, task_file(), changes).eval_lengths == (7, 9)
    with pytest.raises(ValueError, match=r"eval_lengths must be a list such as \[1, 2\]; got 7"):
        read_recipe(TaskRecipe, task_file(), ["output=x", "eval_lengths=7"])


def test_examples_depend_on_seed_and_number_alone():
    task = find_task("copy")
    collate = TaskCollator(task, seed=3, lengths=(3, 5))
    whole = collate(range(8, 24))["input_ids"]
    halves = [collate(range(8, 16))["input_ids"], collate(range(16, 24))["input_ids"]]
    for row, half in zip(whole, [*halves[0], *halves[1]], strict=True):
        assert torch.equal(row[row > 0], half[half > 0])
    tests = task.batch(0, 64, 5).input_ids.tolist()
    assert not any(row in tests for row in collate(range(64))["input_ids"].tolist())


def test_a_run_loads_with_the_auto_classes_and_tells_its_scores():
    run = task_run()
    model = AutoModelForCausalLM.from_pretrained(run)
    assert (model.config.attention, model.config.hidden_size) == ("asentmax-adaptive", 16)
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 3)
    results = json.loads((run / "results.json").read_text())
    assert results["step"] == 8
    assert {"exact_match", "exact_match_5", "exact_match_10", "token_accuracy_5"} == set(
        results["candidates"]["last"]
    ) - {"token_accuracy_10"}
    card = (run / "README.md").read_text()
    assert "| attention | asentmax-adaptive |" in card
    assert "the task copy at lengths 3 to 5" in card
    log = log_of(run)
    assert [x["step"] for x in log if "loss" in x] == [2, 4, 6, 8]
    assert [x["step"] for x in log if "dev_exact_match_10" in x] == [4, 8]
    last = [x["alpha"] for x in log if "alpha" in x][-1]
    assert last["model.layers.0.self_attn"] == pytest.approx(
        model.model.layers[0].self_attn.alpha().tolist()
    )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    is_plain = optimizer == "adamw"
    whole = (
        task_run() if is_plain else train_task(task_recipe(tmp_path / "whole", optimizer="muon"))
    )
    recipe = task_recipe(tmp_path / "run", optimizer=optimizer)
    with pytest.raises(RuntimeError, match="broken"):
        train_task(recipe, progress=Breaks(6))
    messages = []
    train_task(recipe, resume=True, report=messages.append)
    assert messages == ["Resuming after step 4."]
    for name in ("model.safetensors", "checkpoints/checkpoint-8/optimizer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
    assert log_of(tmp_path / "run") == log_of(whole)


@pytest.mark.slow
def test_two_processes_are_two_batches_of_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    train_task(task_recipe(one, accumulate=2))
    start = command("tasks", "train", task_file(), f"output={two}")[1:]
    launch = [command()[0], "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run([*launch, *start])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exact match") == 1
    expected = load_file(one / "model.safetensors")
    for name, x in load_file(two / "model.safetensors").items():
        torch.testing.assert_close(x, expected[name], rtol=1e-4, atol=1e-5)


def test_a_copying_model_learns_to_end_its_answers(tmp_path):
    train_task(
        task_recipe(tmp_path, attention="softmax", max_steps=60, log_steps=10, eval_steps=60,
                    save_steps=60, dropout=0.0, batch_size=16)
    )  # fmt: skip
    losses = [x["loss"] for x in read_log(tmp_path / "log.jsonl") if "loss" in x]
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_dry_run_writes_nothing(tmp_path, optimizer):
    plan = dry_run(TaskJob(task_recipe(tmp_path / "run", optimizer=optimizer)))
    model, _ = load_task_run(task_run())
    assert plan.parameters == sum(x.numel() for x in model.parameters())
    assert plan.sizes["examples"] == SETTINGS["max_steps"] * SETTINGS["batch_size"]
    assert 2 < plan.loss < 6
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="has files in it"):
        dry_run(TaskJob(task_recipe(task_run())))


def test_an_evaluation_stays_with_its_run_and_says_where_memory_ended():
    assert length_multiples(task_recipe("x"), 4) == [5, 10, 20]
    assert length_multiples(task_recipe("x"), 7) == [5, 10, 20]
    found = evaluate_run(task_run(), [5, 10**6], examples=3, memory_limit=2**28)
    assert found == json.loads((task_run() / "eval.json").read_text())
    assert [x["length"] for x in found["scores"]] == [5]
    assert "length 1000000: a pass takes about" in found["stopped"]
    assert read_evaluations(task_run()) == [found]
    with pytest.raises(ValueError, match="at least 1 for copy; got 0"):
        evaluate_run(task_run(), [0])


def test_a_sweep_does_nothing_twice(tmp_path):
    base = task_recipe(tmp_path, max_steps=2, eval_steps=2)
    recipes = sweep_recipes(base, attentions=["softmax", "entmax"], positions=["rope"], seeds=[1])
    names = [recipe.output.rpartition("/")[2] for recipe in recipes]
    assert names == ["copy-softmax-rope-1", "copy-entmax-rope-1"]
    first = run_one(recipes[0], [5], examples=2)
    messages = []
    assert run_one(recipes[0], [5], examples=2, report=messages.append) == first
    assert messages[-1] == "This training has ended already."
    again = run_one(recipes[0], [5, 6], examples=2)
    assert [x["length"] for x in again["scores"]] == [5, 6]
    with pytest.raises(ValueError, match=r"there is no eval\.json"):
        read_evaluations(tmp_path / "nothing")
