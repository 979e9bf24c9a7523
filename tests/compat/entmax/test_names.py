"""The names, arguments and attributes of the ``entmax`` package, version 1.3."""

import importlib
import inspect

import entmax as package
import pytest
import torch

import adasparse.compat.entmax as compat

SUBMODULES = ["activations", "root_finding", "losses"]


def public_names(module):
    """What ``module`` and its submodules define: nothing that is only imported there."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(module.__name__)
    )


def parameters(function):
    """Names and defaults in order, less the context that PyTorch hands to an autograd function."""
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in found if p.name != "ctx"]


def parameters_of(value):
    if inspect.isclass(value) and issubclass(value, torch.autograd.Function):
        return parameters(value.forward)
    return parameters(value.apply if hasattr(value, "apply") and not is_module(value) else value)


def is_module(value):
    return inspect.isclass(value) and issubclass(value, torch.nn.Module)


NAMES = [("", name) for name in public_names(package)] + [
    (submodule, name)
    for submodule in SUBMODULES
    for name in public_names(importlib.import_module(f"entmax.{submodule}"))
]


def find(root, submodule, name):
    return getattr(importlib.import_module(f"{root}.{submodule}".rstrip(".")), name)


@pytest.mark.parametrize(("submodule", "name"), NAMES)
def test_every_name_takes_the_same_arguments(submodule, name):
    theirs = parameters_of(find("entmax", submodule, name))
    ours = parameters_of(find("adasparse.compat.entmax", submodule, name))
    assert ours[: len(theirs)] == theirs
    assert {extra for extra, _ in ours[len(theirs) :]} <= {"return_support_size"}


def test_the_package_was_really_looked_at():
    assert len(public_names(package)) == 22
    assert len(NAMES) > 50


def test_all_lists_the_public_names_in_order():
    assert compat.__all__ == sorted(compat.__all__) == public_names(package)


MODULES = [name for name in compat.__all__ if is_module(getattr(compat, name))]


@pytest.mark.parametrize("name", MODULES)
def test_modules_keep_their_arguments_as_attributes(name):
    def attributes(module):
        return {k: v for k, v in vars(module).items() if not k.startswith("_")}

    theirs = attributes(getattr(package, name)())
    ours = attributes(getattr(compat, name)())
    assert {key: ours[key] for key in theirs} == theirs


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_no_state(name):
    assert not getattr(compat, name)().state_dict()
