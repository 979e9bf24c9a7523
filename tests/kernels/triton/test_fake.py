"""Tracing of the operators with the Triton backend, with CUDA tensors that do not exist.

Only the forward: a PyTorch without CUDA aborts when it makes a node of the backward graph on a
CUDA device, whatever the operator.
"""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adasparse import entmax, entmax_attention
from adasparse.functional.backends import BACKENDS

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _triton_has_a_device(monkeypatch):
    backend = replace(BACKENDS["triton"], missing_reason=lambda: "")
    monkeypatch.setitem(BACKENDS, "triton", backend)


class Attention(torch.nn.Module):
    def forward(self, query, key, value, alpha):
        output = entmax_attention(query, key, value, alpha=alpha, is_causal=True)
        return entmax(output, alpha=1.5)


def fake_tensors():
    tensors = [torch.empty(2, 4, 16, 8, device="cuda") for _ in range(3)]
    return (*tensors, torch.full((4,), 1.5, device="cuda"))


def operators(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def assert_traced(graph):
    names = operators(graph)
    assert any("adasparse.entmax_attention" in name for name in names), names
    assert any("adasparse.entmax.default" in name for name in names), names


def test_export_traces_the_operators():
    with FakeTensorMode(), torch.no_grad():
        program = torch.export.export(Attention(), fake_tensors(), strict=False)
    assert_traced(program.graph)


def compiled(function):
    """Output and graph of a function of fake tensors that is compiled whole."""
    graphs = []

    def keep(module, inputs):
        graphs.append(module.graph)
        return module.forward

    torch._dynamo.reset()
    with FakeTensorMode(), torch.no_grad():
        output = torch.compile(function, fullgraph=True, backend=keep)(*fake_tensors())
    (graph,) = graphs
    return output, graph


@pytest.mark.parametrize("alpha", [1.5, 2.5])
def test_compile_traces_a_number_for_alpha(alpha):
    output, graph = compiled(lambda *x: entmax_attention(*x[:3], alpha=alpha))
    assert output.shape == (2, 4, 16, 8) and output.device.type == "cuda"
    assert any("adasparse.entmax_attention" in name for name in operators(graph))


def test_compile_traces_the_operators_in_one_graph():
    output, graph = compiled(Attention())
    assert output.shape == (2, 4, 16, 8) and output.device.type == "cuda"
    assert_traced(graph)
