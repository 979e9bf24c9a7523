"""Every model family of transformers, tried: a table for the documentation.

    python benchmarks/models.py                   # an hour; continues where it was stopped
    python benchmarks/models.py --anew            # every class again; continues likewise
    python benchmarks/models.py --retry           # classes not built, wrong or failed, again
    python benchmarks/models.py --retry partly    # those of other outcomes, again
    python benchmarks/models.py llama bart/BartForCausalLM    # these again
    python benchmarks/models.py --table           # only write docs/models.md

Tiny instances with random weights of each class: alpha 1 against the dense model without a mask and
padded on either side, alpha 1.5 against the float64 oracle, restoring, saving and loading, and
generation with a cache against without. See tests/support/families.py. Some classes need packages
that transformers does not: timm, torchvision and scipy. --anew, with or without --retry, collects
verdicts on the code as it is in a file of its own, which takes the place of the results when every
class is in it.
"""

import json
import resource
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
FRESH = ROOT / "build" / "models.json"
TABLE = ROOT / "docs" / "models.md"
SECONDS = 120  # of processor time, for one class
MEMORY = 12 << 30  # bytes of address space, for one process
#: Outcomes in their order in the table, with what they mean.
MEANING = {
    "works": "all attention is sparse after `sparsify(model)`, and everything tried agrees",
    "given inputs": "the same after `sparsify(model, inputs=...)`, with inputs of a forward pass "
    "that reach all attention: images, sound, or the states of an encoder. Without them, "
    "`sparsify` asks for them, or reports what they would reach as skipped",
    "partly": "the same, and some attention stays as it was, as the report of `sparsify` says: it "
    "has no softmax over keys, or no input that was tried reaches it; where no kind of module is "
    "named, only text was tried",
    "no attention": "nothing to make sparse: left as it was, with an error that says so",
    "refused": "left as it was, with an error that says why",
    "no forward": "no forward pass that takes tensors: its parts can be made sparse one by one",
    "not built": "no tiny instance could be made from shrunken settings, or run; not tried",
    "wrong": "something differs",
    "error": "something fails with another error",
}
OPEN = ("not built", "wrong", "error")
#: Outcomes whose reasons the table gives.
TOLD = ("partly", "refused", "no forward", "not built", "wrong", "error")
Results = dict[str, dict[str, dict[str, str]]]


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    file = FRESH if "--anew" in sys.argv else RESULTS
    results: Results = json.loads(file.read_text()) if file.exists() else {}
    known = {family: names for family in families() if (names := classes(family))}
    for family, name in wanted(results, known):
        found = results.setdefault(family, {})
        found[name] = verdict(family, name)
        results[family] = {x: found[x] for x in known[family] if x in found}
        print(f"{family}/{name}", *found[name].values(), flush=True)
        write(results, file)
    if file == FRESH:
        if wanted(results, known):
            return
        file.unlink(missing_ok=True)
    write(results, RESULTS)
    TABLE.write_text(table(results, missing=len([x for x in known if x not in results])))


def wanted(results: Results, known: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return the classes to try, by the arguments of the command line."""
    every = [(family, name) for family, names in known.items() for name in names]
    given = [x for x in sys.argv[1:] if not x.startswith("--")]

    def outcome(family: str, name: str) -> str | None:
        return results.get(family, {}).get(name, {}).get("outcome")

    if "--table" in sys.argv:
        return []
    if "--retry" in sys.argv:
        return [x for x in every if outcome(*x) in (given or OPEN)]
    if given:
        return [x for x in every if x[0] in given or "/".join(x) in given]
    return [x for x in every if outcome(*x) is None]


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


def write(results: Results, file: Path) -> None:
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(results.items())]
    file.parent.mkdir(exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def table(results: Results, missing: int) -> str:
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
    lines += [f"| {x} | {counts[x]} | {MEANING[x]} |" for x in MEANING]
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
            told = note if found[names[0]]["outcome"] in TOLD else ""
            said = f"{what}: {_cell(told)}" if told else what
            lines.append(f"| {family} | {', '.join(names)} | {said} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    main()
