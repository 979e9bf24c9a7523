import json
from pathlib import Path

import pytest

from adasparse.bench.tables import markdown

ROOT = Path(__file__).parents[3]


@pytest.fixture
def ops_file(tmp_path, result):
    row = {
        "operator": "entmax",
        "alpha": 1.5,
        "baseline": "torch.softmax",
        "shape": [4, 8],
        "direction": "forward",
        "ms": 2.0,
        "baseline_ms": 3.0,
        "ratio": 1.5,
    }
    path = tmp_path / "ops.json"
    path.write_text(json.dumps(result("ops", [row, {**row, "alpha": "learned"}])))
    return path


def test_markdown_has_a_cell_per_alpha_and_a_signature(run, ops_file):
    lines = run("table", ops_file).stdout.splitlines()
    assert lines[0].endswith("| α = 1.5 | α = learned |")
    assert lines[2].endswith("| 4×8 | forward | 3.00 | 2.00 (1.50×) | 2.00 (1.50×) |")
    assert lines[-1] == "`ops | cpu:Some-CPU isa:avx2 threads:2 torch:2.13 seed:0 v:1.0`"


def test_table_replaces_what_is_between_the_markers(run, ops_file, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- ops:begin -->\nold\n<!-- ops:end -->\nafter\n")
    for _ in range(2):  # the second time changes nothing
        assert run("table", ops_file, "--into", page).exit_code == 0
        drawn = run("table", ops_file).stdout
        assert (
            page.read_text(encoding="utf-8")
            == f"before\n<!-- ops:begin -->\n{drawn}<!-- ops:end -->\nafter\n"
        )


def test_table_needs_markers_and_a_result(run, ops_file, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no markers")
    complaint = run("table", ops_file, "--into", page)
    assert complaint.exit_code == 2
    assert "ops:begin" in complaint.stderr
    good = json.loads(ops_file.read_text())
    for content in ("not JSON", "{}", "[]", json.dumps({**good, "benchmark": "dance"})):
        ops_file.write_text(content)
        complaint = run("table", ops_file)
        assert complaint.exit_code == 2
        assert "adasparse bench" in complaint.stderr
    assert page.read_text(encoding="utf-8") == "no markers"


@pytest.mark.parametrize("name", ["ops", "attention"])
def test_readme_shows_the_published_results(name):
    file = ROOT / "benchmarks" / "results" / f"{name}.json"
    if not file.exists():
        pytest.skip("no published results in this copy")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = page.split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]
    assert shown == markdown(json.loads(file.read_text(encoding="utf-8")))
