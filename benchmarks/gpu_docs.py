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


def main() -> None:
    instructions = json.loads(gpu_instructions.RESULTS.read_text())
    tables = {
        "compile": gpu_compile.table(json.loads(gpu_compile.RESULTS.read_text())),
        "instructions": gpu_instructions.table(instructions),
        "roofline": gpu_roofline.table(),
    }
    text = PAGE.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        text = re.sub(f"{begin}.*?{end}", f"{begin}\n\n{table}\n\n{end}", text, flags=re.S)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
