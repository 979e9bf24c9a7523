"""Arguments of wrong types and layouts: an error that names them and says what is accepted."""

import re

import numpy as np
import pytest
import torch

from adasparse import (
    entmax,
    entmax_attention,
    entmax_attention_support,
    entmax_attention_varlen,
    entmax_attention_weights,
    entmax_loss,
)

SCORES = torch.randn(3, 6)
QUERY = torch.randn(1, 2, 5, 8)
#: Other things than dense tensors. Nested ones of this layout say that they are strided.
LAYOUTS = {
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor([*x], layout=torch.jagged),
    "coo": lambda x: x.to_sparse(),
    "mkldnn": lambda x: x.to_mkldnn(),
}
ARGUMENTS = {
    "scores": lambda x: entmax(x(SCORES)),
    "alpha": lambda x: entmax(SCORES, alpha=x(torch.full((3, 1), 1.5))),
    "target": lambda x: entmax_loss(SCORES, x(SCORES.softmax(-1))),
    "weight": lambda x: entmax_loss(SCORES, torch.tensor([0, 1, 2]), weight=x(torch.ones(6, 1))),
    "query": lambda x: entmax_attention(x(QUERY), QUERY, QUERY),
    "key": lambda x: entmax_attention_weights(QUERY, x(QUERY)),
    "value": lambda x: entmax_attention(QUERY, QUERY, x(QUERY)),
    "attn_mask": lambda x: entmax_attention(QUERY, QUERY, QUERY, attn_mask=x(torch.zeros(5, 5))),
    "sinks": lambda x: entmax_attention(QUERY, QUERY, QUERY, sinks=x(torch.zeros(2, 1))),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_other_layouts_are_refused_by_name(name, layout):
    """Nested tensors used to end in an internal error of PyTorch, sparse targets in another."""
    with pytest.raises(TypeError, match=f"^{name} must be a dense .strided. tensor; got"):
        ARGUMENTS[name](LAYOUTS[layout])


@pytest.mark.parametrize("x", [None, [[1.0]], np.ones((1, 2, 5, 8)), "x"], ids=lambda x: type(x))
@pytest.mark.parametrize(
    "function", [entmax_attention_weights, entmax_attention_support, entmax_attention]
)
def test_what_is_no_tensor_is_refused_by_name(function, x):
    """A value that is no tensor used to fail an assertion."""
    for name, given in (("key", x), ("value", x)):
        others = {"query": QUERY, "key": QUERY}
        if function is entmax_attention:
            others["value"] = QUERY
        if name in others:
            got = re.escape(type(x).__name__)
            with pytest.raises(TypeError, match=f"^{name} must be a tensor; got {got}"):
                function(**{**others, name: given})


@pytest.mark.parametrize("x", [None, 1, "yes", 1.0, [True], np.ones(2), torch.ones(2)], ids=repr)
@pytest.mark.parametrize("name", ["is_causal", "enable_gqa"])
def test_switches_must_be_bools(name, x):
    """The compiled function used to list the types of all its arguments."""
    with pytest.raises(TypeError, match=f"^{name} must be True or False; got"):
        entmax_attention(QUERY, QUERY, QUERY, **{name: x})
    packed, offsets = QUERY[0].transpose(0, 1), torch.tensor([0, 5])
    with pytest.raises(TypeError, match=f"^{name} must be True or False; got"):
        entmax_attention_varlen(packed, packed, packed, cu_seq_q=offsets, **{name: x})


@pytest.mark.parametrize("x", [None, "x", 1j, [0.1], np.ones(2), torch.ones(2)], ids=repr)
def test_dropout_must_be_a_number(x):
    with pytest.raises(TypeError, match=r"^dropout_p must be a number; got"):
        entmax_attention(QUERY, QUERY, QUERY, dropout_p=x)


@pytest.mark.parametrize("x", [["cpu"], {}, np.ones(2), None, 3], ids=repr)
def test_a_backend_must_be_a_name(x):
    with pytest.raises(ValueError, match=r"^backend must be one of"):
        entmax(SCORES, backend=x)
