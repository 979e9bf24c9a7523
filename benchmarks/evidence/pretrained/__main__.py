"""One experiment on a pretrained model: ``python -m benchmarks.evidence.pretrained SETTINGS OUT``.

SETTINGS is a JSON file of ``subject``, ``kind`` (``sweep``, ``finetune`` or ``speed``), ``models``,
``data``, ``seed``, ``settings`` and ``evaluation``; OUT is the file of the result. Checkpoints are
beside it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from benchmarks.evidence.pretrained.data import novel
from benchmarks.evidence.pretrained.finetune import LOG, FineTuning
from benchmarks.evidence.pretrained.heads import head_densities
from benchmarks.evidence.pretrained.minilm import MiniLM
from benchmarks.evidence.pretrained.opus_mt import OpusMT
from benchmarks.evidence.pretrained.roles import head_roles
from benchmarks.evidence.pretrained.smollm2 import SmolLM2
from benchmarks.evidence.pretrained.speed import compare_speed
from benchmarks.evidence.pretrained.subject import Subject
from transformers import AutoModelForCausalLM

from adasparse.integrations.huggingface import SparsityConfig, restore, sparsify

SUBJECTS: dict[str, type[Subject]] = {x.name: x for x in (MiniLM, SmolLM2, OpusMT)}


def main() -> None:
    """Do what the file says."""
    request_path, out = map(Path, sys.argv[1:])
    request = json.loads(request_path.read_text(encoding="utf-8"))
    torch.set_num_threads(request["threads"])
    subject = SUBJECTS[request["subject"]](Path(request["models"]), Path(request["data"]))
    found = {"sweep": _sweep, "finetune": _finetune, "speed": _speed}[request["kind"]](
        subject, request, out
    )
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(found), encoding="utf-8")
    partial.replace(out)


def _sweep(subject: Subject, request: dict[str, Any], out: Path) -> dict[str, Any]:
    """Measure the model as it is at every α; those done before are in a file beside the result."""
    progress = out.with_name("sweep.json")
    rows = json.loads(progress.read_text()) if progress.is_file() else []
    model = subject.load()
    sample = subject.sample()
    for alpha in request["settings"]["alphas"][len(rows) :]:
        if alpha != 1:
            sparsify(model, SparsityConfig(alpha="fixed", init_alpha=alpha))
        measures = subject.measure(model, request["evaluation"]["final"])
        measures.pop("statistics", None)
        rows.append({"alpha": alpha, **measures, "density": head_densities(model, sample)["mean"]})
        if alpha != 1:
            restore(model)
        progress.write_text(json.dumps(rows))
        print(rows[-1], file=sys.stderr, flush=True)
    return {"rows": rows}


def _finetune(subject: Subject, request: dict[str, Any], out: Path) -> dict[str, Any]:
    """Fine-tune, then measure at length."""
    training = FineTuning(
        subject,
        request["settings"],
        limits=request["evaluation"]["short"],
        seed=request["seed"],
        folder=out.parent,
    )
    model = training.run()
    model.save_pretrained(out.parent / "model")
    log = [json.loads(line) for line in (out.parent / LOG).read_text().splitlines()]
    seconds = sorted(line["seconds"] for line in log if "seconds" in line)
    return {
        "minutes": seconds[len(seconds) // 2] * request["settings"]["steps"] / 60,
        "curve": [line for line in log if "measures" in line],
        "losses": [{"step": x["step"], "loss": x["loss"]} for x in log if "loss" in x],
        "final": subject.measure(model, request["evaluation"]["final"]),
        "heads": head_densities(model, subject.sample()),
        "roles": head_roles(model, subject.sample()),
    }


def _speed(subject: Subject, request: dict[str, Any], out: Path) -> dict[str, Any]:
    """Time the models of finished fine-tunings next to each other, on an idle machine."""
    settings = request["settings"]
    models = {
        name: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for name, folder in request["trained"].items()
    }
    tokens = subject.tokens(novel(subject.data, "test")[: 8 * max(settings["lengths"])])
    rows = compare_speed(
        models,
        tokens,
        settings["lengths"],
        decoded=settings["decoded"],
        rounds=settings["rounds"],
    )
    return {"rows": rows}


if __name__ == "__main__":
    main()
