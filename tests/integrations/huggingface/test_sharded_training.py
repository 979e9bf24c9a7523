"""Two processes train a sparse model as one does: DDP, FSDP2 and tensor parallelism."""

import json

import pytest
import torch

from adasparse.integrations.huggingface import SparsityConfig, sparsify
from support.architectures import ARCHITECTURES
from support.processes import run_processes

#: Large learning rates amplify rounding, in dense models as well.
LEARNING_RATE = 2e-3
MODES = ("ddp", "fsdp2", "tp")
#: Bar of the loss at every step.
BAR = 1e-4

SCRIPT = f"""
import json, sys
import torch
import torch.distributed as dist
import transformers
import adasparse.integrations.huggingface
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

folder, modes = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
tokens = torch.load(folder + "/tokens.pt", weights_only=True)


def load(mode):
    options = {{"tp_plan": "auto"}} if mode == "tp" else {{}}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).train()
    if mode == "ddp":
        return DistributedDataParallel(model)
    if mode == "fsdp2":
        mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def losses(mode):
    model = load(mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr={LEARNING_RATE}, foreach=False)
    for batch in tokens:
        mine = batch if mode == "tp" else batch.chunk(size)[rank]
        loss = model(input_ids=mine, labels=mine).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        if mode != "tp":
            dist.all_reduce(total)
            total /= size
        yield total.item()


print(json.dumps({{mode: list(losses(mode)) for mode in modes}}))
dist.destroy_process_group()
"""


def losses_of_one_process(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=False)
    for batch in tokens:
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"tie_heads": True}, {"length_scale": "adaptive"}], ids=str
)
def test_the_loss_curve_is_that_of_one_process(settings, tmp_path):
    torch.manual_seed(0)
    model = ARCHITECTURES["llama"].build()
    sparsify(model, SparsityConfig(**settings))
    model.save_pretrained(tmp_path)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, model.config.vocab_size, (4, 4, 12), generator=generator)
    tokens = tokens.repeat(5, 1, 1)  # 20 steps
    torch.save(tokens, tmp_path / "tokens.pt")
    expected = list(losses_of_one_process(model.train(), tokens))
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    for output in run_processes(script, str(tmp_path), *MODES):
        curves = json.loads(output.splitlines()[-1])
        for mode in MODES:
            assert curves[mode] == pytest.approx(expected, abs=BAR), mode
    assert expected[-1] < expected[0]  # it learns
