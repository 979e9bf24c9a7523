import ast
import subprocess
import sys

import adasparse

#: Modules besides those of the standard library that ``import adasparse`` may load on top of torch
#: and numpy.
ALLOWED: set[str] = set()


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
    brought = set(ast.literal_eval(output)) - set(sys.stdlib_module_names)
    assert brought <= ALLOWED, sorted(brought - ALLOWED)
