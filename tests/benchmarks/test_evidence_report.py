import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.evidence.report import write_pages, write_readme
from benchmarks.evidence.report.earlier import earlier_sections
from benchmarks.evidence.report.language import LanguageResults, needle_cell
from benchmarks.evidence.report.logs import by_run
from benchmarks.evidence.report.pretrained import SUBJECTS, difference_to_control
from benchmarks.evidence.report.tables import cell, spoken
from benchmarks.evidence.report.tasks import TaskResults
from benchmarks.evidence.statistics import Interval, bleu_of_sums
from benchmarks.evidence.workshop import ROOT

RESULTS, DOCS = ROOT / "benchmarks" / "results" / "evidence", ROOT / "docs" / "results"


def test_published_pages_are_those_of_the_logs(tmp_path):
    for page in write_pages(RESULTS, tmp_path):
        published = DOCS / page.name
        assert published.read_bytes() == page.read_bytes(), f"report writes another {page.name}"
        figures = sorted(tmp_path.glob(f"{page.stem}/*"))
        for path in figures:
            other = DOCS / page.stem / path.name
            assert other.read_bytes() == path.read_bytes(), f"report draws another {path.name}"
        assert {x.name for x in DOCS.glob(f"{page.stem}/*")} == {x.name for x in figures}


def test_earlier_runs_stay_beside_new_ones_of_another_corpus():
    folder = RESULTS.parent / "translation"
    kept = earlier_sections(folder, without={("tatoeba_de-en", "de-en")})
    assert kept == earlier_sections(folder) and "### de → en" in kept
    assert "### de → en" not in earlier_sections(folder, without={("multi30k", "de-en")})


def test_readme_has_the_tables_of_the_logs(tmp_path):
    readme = tmp_path / "README.md"
    names = ("pretrained", "translation", "long-context", "language")
    marked = (f"<!-- {x}:begin -->\nold\n<!-- {x}:end -->\n" for x in names)
    readme.write_text("Before\n" + "".join(marked) + "After\n")
    written = write_readme(RESULTS, readme).read_text().splitlines()
    assert written[0] == "Before" and written[-1] == "After" and "old" not in written
    published = (ROOT / "README.md").read_text(encoding="utf-8")
    for table in "\n".join(written[1:-1]).split("<!-- ")[1:]:
        assert table in published
    readme.write_text("no markers")
    with pytest.raises(RuntimeError, match="must have the markers"):
        write_readme(RESULTS, readme)


def test_logs_are_small_and_name_no_folder_of_a_machine():
    for path in RESULTS.glob("*/*.json"):
        assert path.stat().st_size < 300_000, path
        text = path.read_text()
        assert "/home" not in text and "/work" not in text and "/root" not in text, path


@pytest.mark.parametrize(
    ("values", "baseline", "expected"),
    [
        ([99.0, 98.0, 100.0], [50.0, 52.0, 48.0], "**99 ± 2**"),
        ([99.0, 98.0, 100.0], [98.0, 99.0, 100.0], "99 ± 2"),
        ([48.0, 50.0, 52.0], [99.0, 98.0, 100.0], "50 ± 5"),  # worse for sure is not bold
        ([99.0], [0.0, 0.0, 0.0], "99"),  # one seed says nothing
        ([100.0, 100.0], [0.0, 0.0], "**100 ± 0**"),
        ([90.0, 10.0, 50.0], None, "50 ± 99"),
        ([], [1.0], ""),
    ],
)
def test_bold_is_what_the_interval_says(values, baseline, expected):
    assert cell(values, baseline) == expected


def test_lower_is_better_where_that_is_said():
    assert cell([3.0, 3.1], [9.0, 9.1], digits=1, is_better_high=False).startswith("**3.0")
    assert cell([3.0, 3.1], [9.0, 9.1], digits=1) == "3.0 ± 0.6"


def test_no_zero_is_negative():
    assert spoken(Interval(-0.001, -0.004, 2, 3), digits=2) == "0.00 (0.00 to 2.00)"


def _task_log(run, seed, exact, *, attention="softmax", rate=1e-3):
    return {
        "experiment": "sort",
        "run": run,
        "seed": seed,
        "settings": {
            **{"task": "sort-8", "attention": attention, "positions": "nape", "max_length": 16},
            **{"min_length": 8, "learning_rate": rate, "layers": 2, "width": 8, "heads": 2},
            **{"ffn": 8, "batch_size": 4},
        },
        "machine": {"cpu": "test", "threads": 1, "torch": "2", "adasparse": "1"},
        "minutes": 30.0,
        "steps": 2000,
        "solved_at": 1000,
        "scores": [
            {"length": 16 * factor, "examples": 100, "exact_match": x, "token_accuracy": x}
            for factor, x in exact.items()
        ],
    }


def test_where_a_method_is_behind_is_told_as_well(tmp_path):
    """Where softmax led everywhere, ASEntmax was said to be 0 points apart."""
    for name, exact in (("softmax", {1: 1.0, 2: 0.9}), ("asentmax", {1: 1.0, 2: 0.4})):
        log = _task_log(name, 1, exact, attention=name)
        path = tmp_path / "results" / "sort" / f"{name}-1.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(log))
    (page,) = write_pages(tmp_path / "results", tmp_path / "docs")
    behind = "it is furthest behind softmax at 2×, by 50 points, which is no sure difference."
    assert behind in page.read_text()


def test_best_setting_of_a_method_is_shown_and_all_are_listed(tmp_path):
    logs = [
        *(_task_log("softmax", i, {1: 1.0, 2: 0.1, 4: 0.0}) for i in (1, 2)),
        *(_task_log("softmax-high", i, {1: 1.0, 2: 0.6, 4: 0.0}, rate=6e-3) for i in (1, 2)),
        *(_task_log("asentmax", i, {1: 1.0, 2: 0.9, 4: 0.5}, attention="asentmax") for i in (1, 2)),
    ]
    results = TaskResults("sort", logs)
    assert results.best == {"softmax, NAPE": "softmax-high", "ASEntmax, NAPE": "asentmax"}
    for log in logs:
        path = tmp_path / "results" / "sort" / f"{log['run']}-{log['seed']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(log))
    (page,) = write_pages(tmp_path / "results", tmp_path / "docs")
    text = page.read_text()
    assert "| softmax, NAPE | 1,000 | 100 ± 0 | 60 ± 0 | 0 ± 0 |" in text
    assert "| ASEntmax, NAPE | 1,000 | 100 ± 0 | **90 ± 0** | **50 ± 0** |" in text
    assert "| softmax, NAPE | 0.001 | 2 | 100 ± 0 | 10 ± 0 | 0 ± 0 |" in text
    assert "alphabet of 8" in text and "6 runs, 3.0 hours" in text
    assert "it is furthest ahead of softmax at 4×, by 50 (50 to 50) points." in text
    first = _files(tmp_path / "docs")
    write_pages(tmp_path / "results", tmp_path / "docs")
    assert _files(tmp_path / "docs") == first


def _files(folder: Path) -> dict[str, bytes]:
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


def test_scoring_that_ended_counts_as_zero():
    results = TaskResults(
        "sort",
        [
            _task_log("softmax", 1, {1: 1.0, 2: 0.0}),
            _task_log("softmax", 2, {1: 1.0, 2: 1.0, 4: 1.0}),
        ],
    )
    assert results.values("softmax", 4.0) == [0.0, 100.0]


def test_bleu_differs_from_the_control_by_sentences_and_seeds():
    rng = np.random.default_rng(0)
    reference = rng.integers(8, 20, size=200)

    def log(run, seed, quality):
        totals = np.stack([reference - i for i in range(4)], -1)
        counts = rng.binomial(totals, quality)
        rows = np.column_stack((reference, reference, counts, totals))
        return {
            "run": run,
            "seed": seed,
            "final": {"bleu": float(bleu_of_sums(rows.sum(0))), "statistics": rows.tolist()},
        }

    logs = [log("softmax", i, 0.5) for i in (1, 2)] + [log("fixed", i, 0.4) for i in (1, 2)]
    found = difference_to_control(SUBJECTS["opus-mt"], "fixed", by_run(logs))
    means = {run: np.mean([x["final"]["bleu"] for x in own]) for run, own in by_run(logs).items()}
    assert found.mean == pytest.approx(means["fixed"] - means["softmax"])
    assert found.high < 0


def _tuned_log(run, seed, spearman, density, first):
    variant = {"softmax": "softmax", "fixed": "fixed", "learned": "learned"}[run]
    modules = {"encoder.layer.0": {"alpha": [1.4, 1.6], "density": [density, density]}}
    return {
        "experiment": "minilm-finetune",
        "run": run,
        "seed": seed,
        "evaluation": {"final": {"pairs": 1500}},
        "settings": {
            **{"variant": variant, "alpha": 1.5, "steps": 100, "batch_size": 4},
            **{"learning_rate": 1e-5, "anneal_steps": 30},
        },
        "minutes": 6.0,
        "final": {"spearman": spearman},
        "heads": {"mean": density, "modules": modules if run == "learned" else {}},
        "roles": {
            "attentions": {
                **{"first": [[first, 0.1]], "previous": [[0.0, 0.6]], "self": [[0.0, 0.0]]},
                **{"next": [[0.0, 0.0]], "largest": [[0.5, 0.7]]},
            }
        },
    }


def test_fine_tuned_models_are_compared_with_their_control(tmp_path):
    logs = [
        *(_tuned_log("softmax", i, x, 1.0, 0.9) for i, x in ((1, 86.0), (2, 86.2), (3, 85.8))),
        *(_tuned_log("learned", i, x, 0.2, 0.1) for i, x in ((1, 85.0), (2, 85.2), (3, 84.8))),
    ]
    for log in logs:
        path = tmp_path / "results" / "minilm-finetune" / f"{log['run']}-{log['seed']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(log))
    (page,) = write_pages(tmp_path / "results", tmp_path / "docs")
    text = page.read_text()
    # Welch with equal variances of 0.04: 2.776 * sqrt(2 * 0.04 / 3).
    assert "differs from the softmax control by -1.00 (-1.45 to -0.55), at a density of 20%" in text
    name = "annealed to α = 1.5, then learned"
    assert "Measured on 1,500 pairs of sentences." in text
    assert f"| {name} | 3 | 85.00 ± 0.50 | 20.0% ± 0.0 | -1.00 (-1.45 to -0.55) |" in text
    assert "| self-attention | 2 | 1.40 | 1.50 | 1.60 | 20.0% | 20.0% |" not in text
    assert "| encoder | 2 | 1.40 | 1.50 | 1.60 | 20.0% | 20.0% |" in text
    assert (
        "| softmax, fine-tuned as well (control) | self-attention | 2 | 1 | 1 | 0 | 0 | 60% |"
        in text
    )
    assert f"| {name} | self-attention | 2 | 0 | 1 | 0 | 0 | 60% |" in text


def test_needles_of_one_seed_have_an_interval_over_needles():
    def log(attention, seed, right):
        needles = [
            {"length": 512, "depth": depth, "trials": 10, "exact_match": right / 10}
            for depth in (0.0, 1.0)
        ]
        return {
            "run": attention,
            "seed": seed,
            "settings": {"attention": attention, "positions": "nape"},
            "perplexity": [{"length": 512, "perplexity": 80.0}],
            "needles": needles,
        }

    one = LanguageResults([log("softmax", 1, 5), log("asentmax", 1, 9)])
    # Wilson's interval of 18 in 20.
    assert needle_cell(one, "ASEntmax, NAPE", 512) == "90 (70 to 97)"
    several = [log("softmax", i, x) for i, x in ((1, 1), (2, 2))]
    several += [log("asentmax", i, x) for i, x in ((1, 9), (2, 9))]
    # Welch with one degree of freedom: 75 points, 12.706 * 5 to either side.
    assert needle_cell(LanguageResults(several), "ASEntmax, NAPE", 512) == "**90 ± 0**"
