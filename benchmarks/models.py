"""Every model family of transformers, tried: a table for the documentation.

    python benchmarks/models.py              # an hour; continues where it was stopped
    python benchmarks/models.py --retry      # those that were not built, wrong or failed, again
    python benchmarks/models.py llama bert   # these again
    python benchmarks/models.py --table      # only write docs/models.md

Tiny instances with random weights of each class: alpha 1 against the dense model without a mask and
padded on either side, alpha 1.5 against the float64 oracle, restoring, saving and loading, and
generation with a cache against without. See tests/support/families.py.
"""

import json
import signal
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.families import Verdict, classes, families, judge  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "models.json"
TABLE = ROOT / "docs" / "models.md"
SECONDS = 60  # of processor time, for one class
ORDER = ["works", "partly", "refused", "not built", "wrong", "error"]
MEANING = {
    "works": "all attention that runs is sparse, and everything tried agrees",
    "partly": "the same, and some attention stays as it was: see the report of `sparsify`",
    "refused": "left as it was, with an error that says why",
    "not built": "no tiny instance could be made from shrunken settings; not tried",
    "wrong": "something differs",
    "error": "something fails with another error",
}


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    given = [x for x in sys.argv[1:] if not x.startswith("--")]
    known = families()
    if "--table" in sys.argv:
        wanted = []
    elif "--retry" in sys.argv:
        wanted = [x for x in known if _is_open(results.get(x, {}))]
    else:
        wanted = given or [x for x in known if x not in results]
    for family in wanted:
        results[family] = {name: verdict(family, name) for name in classes(family)}
        print(family, *(f"{k}={v['outcome']}" for k, v in results[family].items()), flush=True)
        write(results)
    write(results)
    TABLE.write_text(table(results, missing=len([x for x in known if x not in results])))


def _is_open(found: dict[str, dict[str, str]]) -> bool:
    return any(x["outcome"] in ("not built", "wrong", "error") for x in found.values())


class OutOfTimeError(BaseException):
    """One class took too long; no handler of errors must take it for one."""


def verdict(family: str, name: str) -> dict[str, str]:
    def stop(*_: object) -> None:
        raise OutOfTimeError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        found = judge(family, name)
    except OutOfTimeError:
        found = Verdict("not built", f"it took more than {SECONDS} seconds")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {key: value for key, value in asdict(found).items() if value}


def write(results: dict[str, dict[str, dict[str, str]]]) -> None:
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(results.items())]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def table(results: dict[str, dict[str, dict[str, str]]], missing: int) -> str:
    every = [x for found in results.values() for x in found.values()]
    counts = Counter(x["outcome"] for x in every)
    lines = [
        "# Models",
        "",
        "Made by `python benchmarks/models.py` with transformers "
        f"{transformers.__version__}: {len(every)} classes of {len(results)} model types, as tiny "
        "instances with random weights. Of each, α = 1 is compared with the dense model without a "
        "mask and padded on either side, α = 1.5 with a float64 oracle, and restoring, saving and "
        "loading, and generation with a cache and without are tried, each as far as the dense "
        "model runs so.",
        "",
    ]
    if missing:
        lines += [f"This table is partial: {missing} model types were not tried yet.", ""]
    lines += ["| outcome | classes | meaning |", "| --- | --- | --- |"]
    lines += [f"| {x} | {counts[x]} | {MEANING[x]} |" for x in ORDER]
    lines += [
        "",
        "`softmax` marks models that attend by code of their own and are sparse through the "
        "softmax that they call, which is slower; `both`, models with parts of either kind.",
        "",
        "| model type | classes | outcome |",
        "| --- | --- | --- |",
    ]
    for family, found in sorted(results.items()):
        by_outcome: dict[str, list[str]] = {}
        for name, x in found.items():
            route = x.get("route", "interface")
            what = x["outcome"] + (f" ({route})" if route != "interface" else "")
            by_outcome.setdefault(what, []).append(name)
        for what, names in by_outcome.items():
            note = next((found[x].get("note", "") for x in names), "")
            told = note if what in ("refused", "wrong", "error") else ""
            said = f"{what}: {_cell(told)}" if told else what
            lines.append(f"| {family} | {', '.join(names)} | {said} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    main()
