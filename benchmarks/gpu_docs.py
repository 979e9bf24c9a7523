"""Tables of docs/gpu.md, from the results of the other scripts.

python benchmarks/gpu_docs.py
"""

import json
import re
from pathlib import Path

import gpu_compile
import gpu_instructions
import gpu_roofline

PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
#: Written by gpu_passes.py, which needs transformers to be imported.
PASSES = Path(__file__).parent / "results" / "gpu" / "passes.json"


def passes_table() -> str:
    """Passes over the keys on trained models in Markdown."""
    lines = [
        "| task | layer | keys | passes over all keys | passes over the mask: mean, most "
        "| blocks kept |",
        "|---|---|---|---|---|---|",
    ]
    for name, layers in json.loads(PASSES.read_text()).items():
        for row in layers:
            mean, most = row["masked passes, mean"], row["masked passes, most"]
            lines.append(
                f"| {name} | {row['layer'] + 1} | {row['keys']:,} | {row['dense passes']:g} "
                f"| {mean:.2f}, {most} | {row['blocks kept']:.0%} |"
            )
    return "\n".join(lines)


def updated(page: str) -> str:
    """Page with the tables of the results."""
    compiled = json.loads(gpu_compile.RESULTS.read_text())
    instructions = json.loads(gpu_instructions.RESULTS.read_text())
    tables = {
        "passes": passes_table(),
        "compile": gpu_compile.table(compiled),
        "decoding": gpu_compile.decoding_table(compiled),
        "rows": gpu_compile.row_table(compiled),
        "instructions": gpu_instructions.table(instructions),
        "roofline": gpu_roofline.table(),
    }
    for name, table in tables.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        page = re.sub(f"{begin}.*?{end}", f"{begin}\n\n{table}\n\n{end}", page, flags=re.S)
    return page


def main() -> None:
    PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
