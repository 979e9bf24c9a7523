"""Runs notebooks of this folder and stores their outputs: python examples/execute.py [NAME ...].

Outputs stay small: pages of the explorer are dropped, which a reader gets by running the cell.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
#: Longest HTML that is stored, in characters.
MAX_HTML = 20_000


def execute(path: Path) -> None:
    """Run one notebook from its first cell on and write it back with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=3600, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":  # progress bars and the like are of no interest
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            if len(output.get("data", {}).get("text/html", "")) > MAX_HTML:
                del output["data"]["text/html"]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        execute(FOLDER / f"{name}.ipynb")
        print(name)
