import ast
import subprocess
import sys

import adasparse


def test_public_names():
    assert adasparse.__all__ == sorted(adasparse.__all__)
    assert all(hasattr(adasparse, name) for name in adasparse.__all__)
    assert adasparse.__version__


def test_import_needs_torch_and_numpy_alone():
    code = (
        "import sys; import torch, numpy; base = set(sys.modules); "
        "import adasparse; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - base} - {'adasparse'}))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    heavy = {"transformers", "typer", "rich", "matplotlib", "triton", "entmax", "scipy"}
    assert not heavy & set(ast.literal_eval(output))
