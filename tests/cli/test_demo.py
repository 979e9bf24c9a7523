import json
import math

import pytest
from typer.testing import CliRunner

from adasparse.cli import demo
from adasparse.cli.main import app


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(demo, "TIMED_SHAPE", (8, 16))
    monkeypatch.setattr(demo, "ATTENTION_SHAPE", (1, 2, 40, 8))


def run(*arguments):
    return CliRunner().invoke(app, ["demo", *arguments])


def test_training_follows_the_gradient_to_a_minimum():
    history = demo.train_alpha()
    first, last = history[0], history[-1]
    assert first["grad"] < 0
    assert last["alpha"] > first["alpha"]
    assert abs(last["grad"]) < 1e-3 * abs(first["grad"])
    assert last["loss"] < min(demo.evaluate(alpha)["loss"] for alpha in (1.0, 1.2, 1.35, 1.5, 2.0))


def test_gradient_by_alpha_is_the_slope_of_the_loss():
    step = 1e-2
    ahead, behind = (demo.evaluate(1.2 + sign * step)["loss"] for sign in (1, -1))
    slope = (ahead - behind) / (2 * step)
    assert demo.evaluate(1.2)["grad_alpha"] == pytest.approx(slope, rel=0.02)


def test_json_shows_fewer_weights_as_alpha_grows():
    result = run("--json")
    assert result.exit_code == 0
    output = json.loads(result.stdout)
    assert 0 < output["attention"]["zeros"] < 1
    maps = output["maps"]
    support = {name: sum(w > 0 for w in row["weights"]) for name, row in maps.items()}
    assert support["softmax"] == len(demo.SCORES)
    assert support["sparsemax"] < support["1.5-entmax"] < support["learned α"] < support["softmax"]
    assert all(math.isclose(sum(row["weights"]), 1, abs_tol=1e-6) for row in maps.values())


def test_zeros_are_blank_and_lines_fit_80_columns():
    result = run()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    sparsemax = next(line for line in lines if line.startswith("sparsemax"))
    assert sparsemax.split() == ["sparsemax", "0.700", "0.300", "2.000", "2/8"]
    assert max(map(len, lines)) <= 80
    assert "softmax's speed" in result.stdout
