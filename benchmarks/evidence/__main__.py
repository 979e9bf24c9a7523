"""Runs behind the results pages: plan them, do the next ones, report on all.

    python -m benchmarks.evidence plan
    python -m benchmarks.evidence run --hours 2.5 --threads 1
    python -m benchmarks.evidence report

``run`` takes the next missing piece of ``experiments.yaml`` and resumes unfinished ones. It can be
stopped any time, kill -9 included, and several runners side by side take different pieces. State is
files: checkpoints in --work, logs of finished pieces in benchmarks/results/evidence. ``report``
writes the pages docs/results/*.md with their tables and figures from those logs alone, and a table
of the README.
"""

import argparse
import fnmatch
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.evidence.declared import Piece, read_pieces
from benchmarks.evidence.kinds import KINDS
from benchmarks.evidence.plan import plan_table
from benchmarks.evidence.runner import run_pieces, states
from benchmarks.evidence.workshop import ROOT, Workshop

RESULTS = ROOT / "benchmarks" / "results" / "evidence"


def main() -> None:
    """Read the command line and do what it says."""
    options = _parser().parse_args()
    pieces = _chosen(options.only)
    if options.command == "report":
        from benchmarks.evidence.report import write_pages, write_readme

        for path in [*write_pages(RESULTS), write_readme(RESULTS)]:
            print(path.relative_to(ROOT))
        return
    workshop = Workshop(
        work=options.work.resolve(),
        data=options.data.resolve(),
        results=RESULTS,
        python=options.python,
        threads=getattr(options, "threads", 1),
        deadline=time.monotonic() + 3600 * getattr(options, "hours", 0.0),
    )
    if options.command == "plan":
        print(plan_table(states(pieces, workshop), each=options.each))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped; the next run resumes."))
    os.nice(max(0, options.nice - os.nice(0)))
    done = run_pieces(pieces, workshop, KINDS)
    print(f"{len(done)} piece(s) done.", *done, sep="\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--only", action="append", help="pieces such as 'sort/asentmax*/1'")
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--work", type=Path, default=_place("WORK", "runs"), help="checkpoints")
    place.add_argument("--data", type=Path, default=_place("DATA", "data"), help="corpora")
    place.add_argument(
        "--python",
        default=os.environ.get("EVIDENCE_PYTHON", sys.executable),
        help="interpreter whose adasparse is run",
    )
    plan = commands.add_parser("plan", parents=[common, place], help="show what is missing")
    plan.add_argument("--each", action="store_true", help="a line for each piece")
    run = commands.add_parser("run", parents=[common, place], help="do what is missing")
    run.add_argument("--hours", type=float, default=2.5)
    run.add_argument("--threads", type=int, default=1)
    run.add_argument("--nice", type=int, default=19)
    commands.add_parser("report", parents=[common], help="write the results pages")
    return parser


def _place(name: str, default: str) -> Path:
    return Path(os.environ.get(f"EVIDENCE_{name}", default))


def _chosen(patterns: list[str] | None) -> list[Piece]:
    pieces = read_pieces()
    if not patterns:
        return pieces
    found = [x for x in pieces if any(fnmatch.fnmatch(x.name, pattern) for pattern in patterns)]
    if not found:
        some = ", ".join(x.name for x in pieces[:5])
        raise SystemExit(f"--only must match pieces such as {some}; got {patterns}.")
    return found


if __name__ == "__main__":
    main()
