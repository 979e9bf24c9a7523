"""Paper model of the time of attention on an A100, from counted instructions. Not a measurement.

A scheduler of an A100 issues one warp instruction a cycle; a product (HMMA.16816) takes its pipe 8
cycles, exp and log 8, float32 and integer operations 2. The time of a tile is that of the busiest
pipe if everything overlaps (low), and products plus the rest if nothing does (high). Memory
traffic, launches and the tails of causal rows are left out.

    python benchmarks/gpu_roofline.py    # after gpu_instructions.py
"""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "gpu" / "instructions.json"
#: Length and fraction of blocks kept, as AdaSplash reports them for its models.
KEPT = {4096: 0.49, 16384: 0.36, 65536: 0.25}
#: Fraction of FlashAttention-2's time that its forward takes; its backward grows with the blocks.
FORWARD = 0.22
#: Passes over the mask alone before the output.
MASKED = {"1.5": 0, "2": 0, "general": 2}


def cycles(row: dict[str, int]) -> tuple[float, float]:
    """Cycles of a score on one scheduler, low and high."""
    product, special = 8 * row["products"], 8 * row["exp, log"]
    others = row["all"] - row["products"] - row["exp, log"]
    rest = max(special, 2 * row["float32"], 2 * (others - row["float32"]), row["all"])
    scores = row["scores of a thread"]
    return max(product, rest) / scores, (product + rest) / scores


def forward(rows: dict[str, dict[str, int]], name: str, kept: float) -> tuple[float, float]:
    """Time relative to the softmax kernel."""
    base = cycles(rows["softmax"])
    times = []
    for n in (0, 1):
        dense = cycles(rows[f"pass 1, {name}"])[n] + cycles(rows[f"pass 2, {name}"])[n]
        masked = MASKED[name] * cycles(rows[f"masked, {name}"])[n]
        times.append((dense + kept * (masked + cycles(rows[f"output, {name}"])[n])) / base[n])
    return min(times), max(times)


def table() -> str:
    rows = json.loads(RESULTS.read_text())["sm_80"]
    lines = ["| keys (blocks kept) | map | forward | forward and backward |", "|---|---|---|---|"]
    for length, kept in KEPT.items():
        for name in MASKED:
            low, high = forward(rows, name, kept)
            both = [FORWARD * x + (1 - FORWARD) * kept for x in (low, high)]
            lines.append(
                f"| {length:,} ({kept}) | {name} | {low:.2f}-{high:.2f} | "
                f"{both[0]:.2f}-{both[1]:.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
