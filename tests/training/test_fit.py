"""The engine with a toy model: batches, seeds, checkpoints, resuming, the folder of a run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from adasparse.training import (
    TokenBatches,
    TrainingStopped,
    checkpoints,
    dry_run,
    fit,
    is_intact,
    read_log,
    read_results,
)
from adasparse.training.trainer import recipe_arguments
from support.toy_job import LENGTHS, ToyModel, ToyScorer, Watch, toy_job


class Crash(Exception):  # noqa: N818  # not an error of ours
    pass


def crash(job, step, **options):
    def stop(now, _):
        if now == step:
            raise Crash

    with pytest.raises(Crash):
        fit(job, progress=Watch(stop), **options)


def steps(output):
    return [int(path.name.split("-")[1]) for path in checkpoints(output / "checkpoints")]


def files(output):
    """Everything that must not depend on the clock or on interruptions."""
    log = [{k: v for k, v in x.items() if k not in ("time", "tokens_per_second")}
           for x in read_log(output / "log.jsonl")]  # fmt: skip
    names = ["model.safetensors", "config.json", "README.md", "results.json"]
    last = f"checkpoints/checkpoint-{steps(output)[-1]}"
    names += [f"{last}/model.safetensors", f"{last}/optimizer.safetensors", f"{last}/config.json"]
    return log, {name: (output / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run."""
    return fit(toy_job(tmp_path_factory.mktemp("toy") / "run"))


def test_batches_are_those_of_the_sampler_in_its_order(tmp_path, monkeypatch):
    seen, true = [], ToyModel.forward

    def forward(self, input_ids, labels):
        seen.append(sorted(input_ids[:, 0].tolist()))
        return true(self, input_ids, labels)

    monkeypatch.setattr(ToyModel, "forward", forward)
    fit(toy_job(tmp_path / "run", accumulate=2))
    batches = TokenBatches(LENGTHS, max_tokens=16, seed=1, num_batches=16)
    assert seen == [sorted(batch) for batch in batches]


def test_dropout_depends_on_seed_step_and_batch_alone(tmp_path, monkeypatch):
    """Random numbers drawn elsewhere, such as by a scorer, change nothing."""
    true = ToyScorer.scores

    def scores(self, model):
        torch.rand(7)
        return true(self, model)

    one = fit(toy_job(tmp_path / "one"))
    monkeypatch.setattr(ToyScorer, "scores", scores)
    two = fit(toy_job(tmp_path / "two", eval_steps=1))
    three = fit(toy_job(tmp_path / "three", seed=2))
    name = "checkpoints/checkpoint-8/model.safetensors"
    assert (one / name).read_bytes() == (two / name).read_bytes() != (three / name).read_bytes()


def test_checkpoints_are_sealed_and_rotated(whole):
    assert steps(whole) == [3, 6, 8]  # every third and the last, which is the best
    assert all(is_intact(path) for path in checkpoints(whole / "checkpoints"))
    few = fit(toy_job(whole.parent / "few", keep=2, eval_steps=8))
    assert steps(few) == [6, 8]
    assert read_results(few).keys() == {"model", "step", "average", "candidates"}


@pytest.mark.parametrize("step", [1, 3, 5, 8])
def test_a_resumed_training_ends_as_if_never_interrupted(tmp_path, whole, step):
    job = toy_job(tmp_path / "run")
    crash(job, step)
    fit(job, resume=True)
    assert files(tmp_path / "run") == files(whole)


def test_a_damaged_checkpoint_is_skipped(tmp_path, whole):
    job, messages = toy_job(tmp_path / "run"), []
    crash(job, 7)
    weights = tmp_path / "run/checkpoints/checkpoint-6/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    fit(job, resume=True, report=messages.append)
    assert messages[0].startswith("checkpoint-6 is damaged")
    assert messages[1] == "Resuming after step 4."
    assert files(tmp_path / "run") == files(whole)


def test_the_best_candidate_becomes_the_model(whole):
    results = read_results(whole)
    best = min(results["candidates"], key=lambda name: results["candidates"][name]["loss"])
    assert results["model"] == best
    weights = load_file(whole / "model.safetensors")
    score = sum(weights[x].double().mean().item() for x in ("table.weight", "alpha.alpha_logit"))
    assert results["candidates"][best]["loss"] == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("factor", [0.0, 0.5, 10.0])
def test_alpha_has_a_learning_rate_of_its_own(tmp_path, factor):
    """The first update of Adam is the learning rate, whatever the gradient."""
    rates = {}

    def note(step, given):
        rates[step] = [group["lr"] for group in given["optimizer"].param_groups]

    job = toy_job(tmp_path / "run", alpha_lr_factor=factor, warmup_steps=0)
    before = job.build_model().state_dict()
    fit(job, progress=Watch(note))
    assert all(x[-1] == pytest.approx(factor * x[0]) for x in rates.values())
    job = toy_job(
        tmp_path / "one", alpha_lr_factor=factor, warmup_steps=0, max_steps=1, max_grad_norm=1e9
    )
    after = load_file(fit(job) / "checkpoints/checkpoint-1/model.safetensors")
    moved = (after["alpha.alpha_logit"] - before["alpha.alpha_logit"]).abs()
    torch.testing.assert_close(moved, torch.full((2,), 0.01 * factor), rtol=1e-3, atol=1e-7)
    assert (after["table.weight"] - before["table.weight"]).abs().max().item() == pytest.approx(
        0.01, rel=1e-3
    )


def test_a_factor_of_one_changes_no_group(whole):
    trainer = toy_job(whole).build_trainer(recipe_arguments(toy_job(whole).recipe))
    assert len(trainer.create_optimizer().param_groups) == 2
    scaled = toy_job(whole, alpha_lr_factor=2.0)
    trainer = scaled.build_trainer(recipe_arguments(scaled.recipe))
    groups = trainer.create_optimizer().param_groups
    assert [x.shape for x in groups[-1]["params"]] == [(2,)]
    assert groups[-1]["weight_decay"] == 0


def test_a_resumed_training_keeps_the_learning_rate_of_alpha(tmp_path):
    whole = fit(toy_job(tmp_path / "whole", alpha_lr_factor=3.0))
    job = toy_job(tmp_path / "run", alpha_lr_factor=3.0)
    crash(job, 5)
    fit(job, resume=True)
    assert files(tmp_path / "run") == files(whole)


def test_a_run_folder_of_version_0_1_0_is_resumed(tmp_path, whole):
    """Its recipe.yaml has no alpha_lr_factor; checkpoints and run.json are as today."""
    job = toy_job(tmp_path / "run")
    crash(job, 5)
    recipe = tmp_path / "run/recipe.yaml"
    lines = recipe.read_text().splitlines(keepends=True)
    old = [line for line in reversed(lines) if not line.startswith("alpha_lr_factor")]
    assert len(old) == len(lines) - 1
    recipe.write_text("".join(old))
    fit(job, resume=True)
    assert files(tmp_path / "run") == files(whole)


def test_a_dry_run_times_an_update_and_writes_nothing(tmp_path):
    plan = dry_run(toy_job(tmp_path / "run"))
    assert plan.parameters == len(LENGTHS) * 4 + 2
    assert plan.as_dict().keys() == {
        "parameters", "examples", "loss", "seconds_per_step", "hours_at_most",
    }  # fmt: skip
    assert plan.hours_at_most == plan.seconds_per_step * 8 / 3600
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_cannot_be_built_leaves_no_folder(tmp_path, monkeypatch):
    job = toy_job(tmp_path / "a/run")

    def broken(*args, **kwargs):
        assert (tmp_path / "a/run/recipe.yaml").is_file()
        raise ValueError("no data")

    with monkeypatch.context() as patch:
        patch.setattr(type(job), "build_trainer", broken)
        with pytest.raises(ValueError, match="no data"):
            fit(job)
    assert list(tmp_path.iterdir()) == []
    fit(job)


def test_a_resumed_job_that_cannot_be_built_changes_nothing(tmp_path, monkeypatch):
    crash(toy_job(tmp_path / "run"), 5)
    before = {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}
    job = toy_job(tmp_path / "run", max_steps=9)

    def broken(*args, **kwargs):
        raise ValueError("no data")

    monkeypatch.setattr(type(job), "build_trainer", broken)
    with pytest.raises(ValueError, match="no data"):
        fit(job, resume=True)
    assert before == {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}


def test_too_few_steps_are_refused_before_anything_is_written(tmp_path):
    """recipe.yaml used to be rewritten first."""
    crash(toy_job(tmp_path / "run"), 5)
    before = {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}
    with pytest.raises(ValueError, match=r"max_steps must be at least 4, .* got 3"):
        fit(toy_job(tmp_path / "run", max_steps=3), resume=True)
    assert before == {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}


@pytest.mark.parametrize("name", ["model.safetensors", "results.json", "README.md", "log.jsonl"])
def test_a_folder_in_place_of_a_file_is_told_before_the_first_step(tmp_path, name):
    """That of a file of the model used to be found after training."""
    crash(toy_job(tmp_path / "run"), 5)
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).mkdir()
    before = {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}
    with pytest.raises(ValueError, match=f"{name} must be a file of the run; it is a folder"):
        fit(toy_job(tmp_path / "run"), resume=True, progress=Watch(never))
    assert before == {x: x.read_bytes() for x in (tmp_path / "run").rglob("*") if x.is_file()}


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", ".model.partial"])
def test_a_file_in_place_of_a_folder_is_told_before_the_first_step(tmp_path, name):
    crash(toy_job(tmp_path / "run"), 2)
    shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    (tmp_path / "run" / name).write_text("")
    with pytest.raises(ValueError, match=f"{name} must be a folder of the run; it is a file"):
        fit(toy_job(tmp_path / "run"), resume=True, progress=Watch(never))


def never(*args):
    raise AssertionError("a step was made")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000], ids=lambda x: repr(x[:8])
)
def test_a_damaged_identity_is_told(tmp_path, content):
    crash(toy_job(tmp_path / "run"), 5)
    (tmp_path / "run/run.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is damaged: "):
        fit(toy_job(tmp_path / "run"), resume=True)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", '{"model": 1', '{"step": {}}'),
        *(
            f'{{"model": "last", "step": 1, "average": 0, "candidates": {{"last": {scores}}}}}'
            for scores in ("{}", "[]", '{"bleu": "high"}')
        ),
    ],
)
def test_damaged_results_are_told(tmp_path, whole, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json is damaged"):
        read_results(tmp_path)


def test_a_diverged_training_says_so(tmp_path, monkeypatch):
    """It used to say that alpha must be at least 1, from deep inside."""

    def scores(self, model):
        for x in model.parameters():
            x.data.fill_(float("nan"))
        raise ValueError("alpha must be at least 1; got nan.")

    monkeypatch.setattr(ToyScorer, "scores", scores)
    with pytest.raises(ValueError, match=r"^Training diverged: table.weight is not finite after"):
        fit(toy_job(tmp_path / "run"))


def test_every_file_has_the_permissions_that_the_user_asks_for(tmp_path):
    before = os.umask(0o027)
    try:
        run = fit(toy_job(tmp_path / "run"))
    finally:
        os.umask(before)
    assert {oct(x.stat().st_mode & 0o777) for x in run.rglob("*") if x.is_file()} == {"0o640"}


def start(output: Path, *, seconds: float = 60) -> subprocess.Popen:
    """A training in another process that stays at its second step."""
    code = (
        "import time\n"
        "from adasparse.training import fit\n"
        "from support.toy_job import Watch, toy_job\n"
        f"stay = Watch(lambda step, _: (print(step, flush=True), time.sleep({seconds}))"
        " if step == 2 else None)\n"
        f"fit(toy_job({str(output)!r}, workers=1), progress=stay)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    )  # fmt: skip
    assert process.stdout.readline() == "2\n"
    return process


def test_a_folder_takes_one_training_at_a_time(tmp_path, whole):
    """Two used to end each other, and to write one log together."""
    output = tmp_path / "run"
    other = start(output)
    try:
        before = {x: x.read_bytes() for x in output.rglob("*") if x.is_file()}
        for resume in (False, True):
            with pytest.raises(ValueError, match="Another training is running in"):
                fit(toy_job(output, workers=1), resume=resume)
        assert before == {x: x.read_bytes() for x in output.rglob("*") if x.is_file()}
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
    fit(toy_job(output), resume=True)  # the lock of a dead process does not block
    assert files(output) == files(whole)


def test_a_stop_asks_to_resume(tmp_path):
    def stop(step, _):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(TrainingStopped, match=r"Stopped after step 3, as asked\."):
        fit(toy_job(tmp_path / "run"), progress=Watch(stop))
    state = json.loads((tmp_path / "run/checkpoints/checkpoint-3/trainer_state.json").read_text())
    assert state["global_step"] == 3
