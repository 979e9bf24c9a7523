"""Write docs/results/translation.md from the files in benchmarks/results/translation.

.venv/bin/python benchmarks/translation_report.py
"""

import json
from pathlib import Path

from adasparse.training.files import write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "translation"
PAGE = ROOT / "docs" / "results" / "translation.md"
NAMES = {"softmax": "softmax", "entmax": "1.5-entmax", "adaptive": "α-entmax"}
CORPORA = {
    "multi30k": "Multi30k",
    "small_parallel_enja": "small_parallel_enja",
    "roen_mixed": "a mix of Romanian-English corpora",
}
INTRODUCTION = """# Translation results

One small Transformer, trained three times on each corpus from the same seed, with the same batches
and the same number of updates: with softmax attention by PyTorch's `scaled_dot_product_attention`,
with 1.5-entmax, and with a learned α per head. Nothing else differs. It has {sizes}.
Scores are sacreBLEU's, of cased and untokenized text, by beam search with {beam} beams; there is
one seed of each, so that differences of half a point mean little.

This page is made by `benchmarks/translation_report.py` from the files in
`benchmarks/results/translation`, and those by

```sh
.venv/bin/python benchmarks/translation_runs.py --corpora DATA --work runs
```

Minutes compare nothing: other work ran beside most trainings, and all but those of de → en had
`MALLOC_TRIM_THRESHOLD_` and `MALLOC_MMAP_THRESHOLD_` raised to some GB, which saves page faults and
changes no result. en → de was trained to 4,000 updates and resumed. Speeds side by side are at the
end.
"""


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-*.json"))]
    order = list(NAMES)
    results.sort(key=lambda x: (x["pair"], order.index(x["attention"])))
    first = results[0]["recipe"]
    sizes = (
        f"{first['encoder_layers']} + {first['decoder_layers']} layers, width {first['width']}, "
        f"{first['heads']} heads, dropout {first['dropout']}"
    )
    parts = [INTRODUCTION.format(sizes=sizes, beam=results[0]["beam"])]
    for pair in dict.fromkeys(x["pair"] for x in results):
        parts.append(section([x for x in results if x["pair"] == pair]))
    speed = RESULTS / "speed.json"
    if speed.exists():
        parts.append(speed_section(json.loads(speed.read_text())))
    write_text(PAGE, "\n".join(parts))


def section(results: list[dict]) -> str:
    first = results[0]
    source, target = first["pair"].split("-")
    tests = list(first["tests"])
    lines = [
        f"## {source} → {target}",
        "",
        f"{CORPORA[first['corpus']]}, {first['pairs']:,} pairs, vocabulary of "
        f"{first['vocabulary']:,}, {first['recipe']['max_steps']:,} updates of "
        f"{first['recipe']['batch_tokens']:,} tokens.",
        "",
        "| attention | "
        + " | ".join(f"{name}: BLEU | chrF" for name in tests)
        + " | development: BLEU | loss | minutes |",
        "| --- |" + " ---: |" * (2 * len(tests) + 3),
    ]
    for x in results:
        scores = [f"{x['tests'][t]['bleu']:.2f} | {x['tests'][t]['chrf']:.2f}" for t in tests]
        chosen = x["development"]["candidates"][x["development"]["model"]]
        lines.append(
            f"| {NAMES[x['attention']]} | "
            + " | ".join(scores)
            + f" | {chosen['bleu']:.2f} | {chosen['loss']:.3f} | {x['training_minutes']:.0f} |"
        )
    signature = next(iter(first["tests"].values()))["signatures"]
    lines += [
        "",
        f"BLEU `{signature['bleu']}`, chrF `{signature['chrf']}`; seed {first['recipe']['seed']}; "
        f"{first['threads']} thread(s) of {first['machine']['cpu']}, torch "
        f"{first['machine']['torch']}. Minutes are those of training at its median speed.",
        "",
    ]
    learned = [x for x in results if x["alpha"]]
    adaptive = next((x for x in learned if x["attention"] == "adaptive"), None)
    if adaptive is not None:
        lines += alpha_lines(adaptive)
    return "\n".join(lines)


def alpha_lines(result: dict) -> list[str]:
    """Learned exponents at the end, by attention type."""
    last = result["alpha"][-1]["alpha"]
    lines = ["Learned α at the end, by attention type:", ""]
    lines += ["| attention | lowest | mean | highest |", "| --- | ---: | ---: | ---: |"]
    kinds = {
        "encoder": lambda name: ".encoder." in name,
        "decoder": lambda name: ".decoder." in name and name.endswith("self_attn"),
        "context": lambda name: name.endswith("encoder_attn"),
    }
    for kind, belongs in kinds.items():
        values = [x for name, alpha in last.items() if belongs(name) for x in alpha]
        mean = sum(values) / len(values)
        lines.append(f"| {kind} | {min(values):.2f} | {mean:.2f} | {max(values):.2f} |")
    return [*lines, ""]


def speed_section(speed: dict) -> str:
    lines = [
        "## Speed",
        "",
        "Tokens a second in training, or sentences a second in translating, and how many times as "
        "fast as softmax. The kinds of attention take turns on the same batches, and the best of "
        f"{speed['repeats']} rounds counts; {speed['threads']} threads of {speed['cpu']}.",
        "",
        "| what | attention | speed | ratio |",
        "| --- | --- | ---: | ---: |",
    ]
    for row in speed["rows"]:
        name = NAMES.get(row["attention"], row["attention"])
        lines.append(f"| {row['what']} | {name} | {row['speed']:,.0f} | {row['ratio']:.2f} |")
    return "\n".join([*lines, "", f"`{speed['command']}`", ""])


if __name__ == "__main__":
    main()
