"""The page on heads: the paper's figures 2 to 10 with tables of their numbers."""

import csv
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence.heads import figures_folder
from benchmarks.evidence.report.logs import Log
from benchmarks.evidence.report.notes import notes
from benchmarks.evidence.runner import write_text

from adasparse.analysis.figures.paper import FIGURES

PAGE, FOLDER = "heads.md", "heads"
KINDS = {"encoder": "encoder", "decoder": "decoder", "context": "context"}
NAMES = {"softmax": "softmax", "entmax": "1.5-entmax", "adaptive": "α-entmax"}
SURE = 0.5  # positional heads give at least this share to one offset
MOVED = 0.02  # alpha that differs by less stands still

Rows = list[list[str]]


def heads_page(logs: Mapping[str, Sequence[Log]], docs: Path, results: Path) -> Path | None:
    """Write the page and copy its figures; return its path, or None if there is no log for it."""
    if "heads" not in logs:
        return None
    (log,) = logs["heads"]
    drawn = figures_folder(results / "heads" / f"{log['run']}-{log['seed']}.json")
    parts = [
        "# What heads do",
        "",
        *notes("heads"),
        "## The figures",
        "",
        f"Measured over {log['sentences']:,} sentences of Tatoeba de → en that were not trained "
        "on, for one model of each variant. Numbers drawn are in the CSV file beside each figure.",
        "",
    ]
    for number in sorted({spec.number for spec in FIGURES}):
        specs = [spec for spec in FIGURES if spec.number == number]
        if not all((drawn / f"{spec.name}.svg").is_file() for spec in specs):
            continue  # no head or sentence is of its kind
        for spec in specs:
            _copy(drawn, docs / FOLDER, spec.name)
        parts += [
            f"### Figure {number}: {specs[0].title}",
            "",
            SECTIONS[number].about,
            "",
            *[f"![{spec.title}]({FOLDER}/{spec.name}.svg)" for spec in specs],
            "",
            *_table(SECTIONS[number].rows(log, drawn)),
            "",
            "Numbers: " + ", ".join(f"[{x.name}.csv]({FOLDER}/{x.name}.csv)" for x in specs) + ".",
            "",
        ]
    command = "python -m benchmarks.evidence run --only 'tatoeba/*' --only 'heads/*'"
    parts += ["## Commands", "", "```sh", command, "python -m benchmarks.evidence report", "```"]
    path = docs / PAGE
    write_text(path, "\n".join(parts) + "\n")
    return path


def _copy(source: Path, target: Path, name: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for suffix in ("svg", "csv"):
        shutil.copyfile(source / f"{name}.{suffix}", target / f"{name}.{suffix}")


def _table(rows: Rows) -> list[str]:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in body]


def _groups(measures: Log) -> list[tuple[str, dict[str, dict]]]:
    """Runs as they are named here, with their groups of heads by kind of attention."""
    return [
        (NAMES[run["attention"]], {group["kind"]: group for group in run["groups"]})
        for run in measures["runs"]
    ]


def _flat(rows: list[list[float | None]]) -> list[float]:
    return [x for row in rows for x in row if x is not None]


def _percent(x: float) -> str:
    return f"{100 * x:.1f}%"


def _trajectories(measures: Log, folder: Path) -> Rows:
    """Section on the movement of α of each head."""
    heads: dict[str, list[float]] = defaultdict(list)
    with (folder / "alpha_trajectories.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            heads[row["head"]].append(float(row["alpha"]))
    rows = [["attention", "heads", "fell", "fell, then rose", "end above the start", "end below"]]
    for kind in KINDS:
        own = [x for name, x in heads.items() if name.startswith(kind)]
        fell = [x for x in own if min(x) < x[0] - MOVED]
        turned = [x for x in fell if x[-1] > min(x) + MOVED]
        counts = (
            len(own),
            len(fell),
            len(turned),
            sum(x[-1] > x[0] + MOVED for x in own),
            sum(x[-1] < x[0] - MOVED for x in own),
        )
        rows.append([kind, *map(str, counts)])
    return rows


def _alphas(measures: Log, _: Path) -> Rows:
    rows = [["attention", "lowest α", "median", "highest α", "below 1.5", "above 1.5"]]
    for name, groups in _groups(measures):
        if name != NAMES["adaptive"]:
            continue
        for kind in KINDS:
            found = _flat(groups[kind]["values"]["alpha"])
            low, middle, high = min(found), statistics.median(found), max(found)
            below, above = sum(x < 1.5 for x in found), sum(x > 1.5 for x in found)
            numbers = [f"{x:.2f}" for x in (low, middle, high)]
            rows.append([kind, *numbers, str(below), str(above)])
    return rows


def _densities(measures: Log, _: Path) -> Rows:
    rows = [["run", *(f"{kind}, mean" for kind in KINDS), "densest head", "sparsest head"]]
    for name, groups in _groups(measures):
        found = {kind: _flat(groups[kind]["values"]["density"]) for kind in KINDS}
        means = [_percent(statistics.mean(x)) for x in found.values()]
        every = [x for values in found.values() for x in values]
        rows.append([name, *means, _percent(max(every)), _percent(min(every))])
    return rows


def _by_layer(key: str, values: str) -> Callable[[Log, Path], Rows]:
    def table(measures: Log, _: Path) -> Rows:
        layers = measures["runs"][0]["groups"][0]["layers"]
        rows = [["run", "attention", *(f"layer {i + 1}" for i in range(layers))]]
        for name, groups in _groups(measures):
            for kind in KINDS:
                found = groups[kind][values][key]
                means = [statistics.mean(x) if isinstance(x, list) else x for x in found]
                rows.append([name, kind, *map(_percent, means)])
        return rows

    return table


def _positions(measures: Log, _: Path) -> Rows:
    offsets = {"previous": "previous token", "next": "next token", "self": "same token"}
    rows = [["run"]]
    for label in offsets.values():
        rows[0] += [f"{label}: heads", "median", "surest"]
    for name, groups in _groups(measures):
        row = [name]
        for key in offsets:
            found = _flat(groups["encoder"]["values"][key])
            sure = [x for x in found if x >= SURE]
            middle = _percent(statistics.median(sure)) if sure else "–"
            row += [str(len(sure)), middle, _percent(max(found))]
        rows.append(row)
    return rows


def _best(key: str, count: int) -> Callable[[Log, Path], Rows]:
    def table(measures: Log, _: Path) -> Rows:
        rows = [["run", *(f"head {i + 1} of the encoder" for i in range(count))]]
        for name, groups in _groups(measures):
            group = groups["encoder"]
            found = [
                (x, i + 1, j + 1, group["intervals"][key][i][j])
                for i, layer in enumerate(group["values"][key])
                for j, x in enumerate(layer)
                if x is not None
            ]
            cells = [
                f"{_percent(x)} ({_percent(low)} to {_percent(high)}), layer {i}, head {j}"
                for x, i, j, (low, high) in sorted(found, reverse=True)[:count]
            ]
            rows.append([name, *cells])
        return rows

    return table


def _extremes(measures: Log, folder: Path) -> Rows:
    rows = [["run", "head", "weights that are not zero", "tokens of the sentence"]]
    found: dict[tuple[str, str], list[dict]] = defaultdict(list)
    with (folder / "sparsity_extremes.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["run"], row["head"]].append(row)
    names = {run["name"]: NAMES[run["attention"]] for run in measures["runs"]}
    for (run, head), entries in found.items():
        weights = sum(float(x["weight"]) > 0 for x in entries)
        tokens = len({x["query"] for x in entries})
        rows.append([names[run], head, str(weights), str(tokens)])
    return rows


@dataclass(frozen=True, kw_only=True)
class Section:
    """Explanation and table of a figure of the paper.

    Args:
        about: Explanation of the numbers.
        rows: Cells of the table, from the measures and the folder of a report.
    """

    about: str
    rows: Callable[[Log, Path], Rows]


#: Sections of the page by number of the figure in the paper.
SECTIONS = {
    2: Section(
        about="Every head starts at 1.5. Counted are heads of which α moved by more than "
        f"{MOVED} in the direction named.",
        rows=_trajectories,
    ),
    3: Section(
        about="1 is softmax, 2 is sparsemax.",
        rows=_alphas,
    ),
    4: Section(
        about="Share of the visible tokens that get any weight, over all heads and sentences.",
        rows=_densities,
    ),
    5: Section(
        about="The heads of each layer, sorted; the table has the mean of a layer.",
        rows=_by_layer("density", "values"),
    ),
    6: Section(
        about="Jensen-Shannon divergence between the heads of a layer, averaged over sentences; "
        "bands in the figure are 95% confidence intervals.",
        rows=_by_layer("diversity", "layer_values"),
    ),
    7: Section(
        about=f"Heads that give at least {SURE:.0%} of their weight to one offset, on average: "
        "their number, their median, and the surest head of all.",
        rows=_positions,
    ),
    8: Section(
        about="For each word of several pieces, the largest weight that one of them gives to the "
        "others; for a word of one piece, its weight on itself. In brackets: 95% confidence "
        "intervals over sentences.",
        rows=_best("merging", 2),
    ),
    9: Section(
        about="Mean weight on the final question mark at interrogative words.",
        rows=_best("interrogation", 2),
    ),
    10: Section(
        about="The head whose density differs the most between sentences of similar length: where "
        "it is least sparse, and where most.",
        rows=_extremes,
    ),
}
