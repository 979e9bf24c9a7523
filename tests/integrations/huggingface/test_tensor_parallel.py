"""Exponents follow their heads where processes share them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, sparsify
from adasparse.integrations.huggingface.heads import sparse_heads
from support.architectures import ARCHITECTURES

SCRIPT = """
import sys
import torch
import torch.distributed as dist
import transformers
import adasparse.integrations.huggingface
from adasparse.integrations.huggingface import sparsify
from adasparse.integrations.huggingface.heads import sparse_heads

folder = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
load = transformers.AutoModelForCausalLM.from_pretrained
model, whole = load(folder, tp_plan="auto"), load(folder)
tokens = torch.arange(3, 15).reshape(2, 6)
output, expected = model(tokens).logits, whole(tokens).logits
output = output.full_tensor() if hasattr(output, "full_tensor") else output
assert torch.allclose(output, expected, atol=1e-4), (output - expected).abs().max()
output.square().mean().backward()
expected.square().mean().backward()
for (name, heads), other in zip(sparse_heads(model).items(), sparse_heads(whole).values()):
    for x, y in zip(heads.parameters(), other.parameters()):
        assert torch.allclose(x.grad, y.grad, atol=1e-6, rtol=1e-3), (name, x.grad, y.grad)
        assert (x.grad != 0).any()
model.save_pretrained(folder + "/again")
dist.barrier()
assert torch.equal(load(folder + "/again")(tokens).logits, expected)
try:
    sparsify(load(sys.argv[2], tp_plan="auto"))
except ValueError as error:
    assert "shares its heads between 2 processes" in str(error), error
else:
    raise AssertionError("sparsified")
dist.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),  # training in two processes is tested, too
        pytest.param({"tie_heads": True}, marks=pytest.mark.slow),
        pytest.param({"heads": (0, 3), "length_scale": "adaptive"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_two_processes_do_the_same_as_one(settings, tmp_path):
    model = ARCHITECTURES["llama"].build()
    model.save_pretrained(tmp_path / "dense")
    sparsify(model, SparsityConfig(**settings))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for heads in sparse_heads(model).values():
            for x in heads.parameters():
                x.add_(torch.randn(x.shape, generator=generator) * 0.3)
    model.save_pretrained(tmp_path / "sparse")
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    runs = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "sparse"), str(tmp_path / "dense")],
            env={
                **os.environ,
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        for rank in ("0", "1")
    ]
    try:
        for run in runs:
            output, errors = run.communicate(timeout=180)
            assert "done" in output, errors[-3000:]
    finally:
        for run in runs:
            run.kill()
