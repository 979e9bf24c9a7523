"""Logs of finished pieces, read for the pages."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Log = dict[str, Any]


def read_logs(results: Path) -> dict[str, list[Log]]:
    """Return the logs of every experiment by its name, in the order of runs and seeds."""
    found: dict[str, list[Log]] = defaultdict(list)
    for path in sorted(results.glob("*/*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        found[log["experiment"]].append(log)
    for logs in found.values():
        logs.sort(key=lambda log: (log["run"], log["seed"]))
    return dict(found)


def by_run(logs: Sequence[Log]) -> dict[str, list[Log]]:
    """Return the logs of each run, one for each of its seeds."""
    found: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        found[log["run"]].append(log)
    return dict(found)


def seeds_of(logs: Sequence[Log]) -> list[int]:
    """Return the seeds that occur."""
    return sorted({log["seed"] for log in logs})


def hours_of(logs: Sequence[Log]) -> float:
    """Return the hours of training on one thread."""
    return sum(log.get("minutes", 0.0) for log in logs) / 60
