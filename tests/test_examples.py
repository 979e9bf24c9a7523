"""The notebooks of examples/ run from their first cell to the last."""

import json
from pathlib import Path

import matplotlib
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
#: What makes a notebook take less than a few seconds: text of its settings, and shorter ones.
QUICK = {
    "entmax": {},
    "pretrained": {"TUNING_STEPS = 300, 150": "TUNING_STEPS = 2, 2"},
    "translation": {"STEPS, PAIRS = 300, 8_000": "STEPS, PAIRS = 10, 500"},
    "longcontext": {
        "STEPS = 800": "STEPS = 2",
        "range(5, 17)": "range(5, 9)",
        "[32, 64, 128, 256, 512, 1024]": "[32, 64]",
    },
}  # fmt: skip
#: Most characters of a stored notebook, outputs included.
MAX_SIZE = 200_000


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def run(path, changes):
    """Run the cells of code in one namespace, as a notebook does."""
    namespace = {"__name__": "__main__"}
    left = dict(changes)
    for i, cell in enumerate(cells(path)):
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        for text in [text for text in left if text in code]:
            code = code.replace(text, left.pop(text))
        exec(compile(code, f"{path.name}, cell {i}", "exec"), namespace)
    assert not left, "settings that the notebook no longer has"


@pytest.fixture
def _fresh(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: str(tmp_path))
    with matplotlib.rc_context():
        matplotlib.use("agg")
        state = torch.random.get_rng_state()
        yield
        torch.random.set_rng_state(state)
        matplotlib.pyplot.close("all")


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_runs(path):
    run(path, QUICK[path.stem])


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_runs_as_it_is(path):
    run(path, {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored_and_small(path):
    assert len(path.read_text(encoding="utf-8")) <= MAX_SIZE
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    found = [output for cell in code for output in cell["outputs"]]
    assert not [x for x in found if x["output_type"] == "error"]
    assert any("image/png" in x.get("data", {}) for x in found)


def test_every_notebook_is_documented():
    page = (EXAMPLES.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(path.name in page for path in NOTEBOOKS)
