import re

import pytest

from adasparse.integrations.huggingface import SparsityConfig


def test_defaults_follow_the_mode():
    assert SparsityConfig().init_alpha == 1.5
    assert SparsityConfig(alpha="annealed").init_alpha == 1.0


def test_settings_survive_a_round_trip():
    config = SparsityConfig(
        alpha="annealed", heads=(0, 2), modules=("a.*", "re:b.+"), attention=("decoder",)
    )
    assert SparsityConfig.from_dict(config.to_dict()) == config
    config = SparsityConfig(tie_heads=True)
    assert SparsityConfig.from_dict(config.to_dict()) == config


def test_unknown_keys_are_named():
    with pytest.raises(ValueError, match=r"'alpha'.*; got \['alhpa', 'beta'\]"):
        SparsityConfig.from_dict({"alhpa": "learned", "beta": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": "frozen"}, "alpha must be one of .*; got 'frozen'"),
        ({"alpha": "fixed", "init_alpha": 0.9}, "init_alpha must be at least 1.*; got 0.9"),
        ({"init_alpha": 2.0}, "strictly between low=1.0 and high=2.0.*; got 2.0"),
        ({"init_alpha": 1.0}, "strictly between low=1.0 and high=2.0.*; got 1.0"),
        ({"final_alpha": float("inf")}, "final_alpha must be at least 1 and finite; got inf"),
        ({"low": 2.0, "high": 1.5}, "1 <= low < high; got 2.0 and 1.5"),
        ({"anneal_steps": 0}, "anneal_steps .* at least 1; got 0"),
        ({"modules": ()}, "modules must have at least one pattern"),
        ({"modules": "re:("}, r"regular expression 're:\('"),
        ({"heads": ()}, "heads must name at least one head"),
        ({"heads": (1, 1)}, r"heads must be different numbers from 0 on; got \(1, 1\)"),
        ({"heads": (-1,)}, r"got \(-1,\)"),
        ({"attention": ("cross",)}, r"attention must be some of .*; got \('cross',\)"),
        ({"length_scale": "long"}, "length_scale must be None or one of .*; got 'long'"),
    ],
    ids=str,
)
def test_mistakes_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        SparsityConfig(**wrong)


def test_mistakes_are_told_together():
    with pytest.raises(ValueError, match=r"final_alpha.*anneal_steps.*heads"):
        SparsityConfig(final_alpha=0.0, anneal_steps=-3, heads=())


@pytest.mark.parametrize(
    ("patterns", "name", "is_meant"),
    [
        ("*", "any.thing", True),
        ("encoder.*", "encoder.layers.0.self_attn", True),
        ("encoder.*", "decoder.layers.0.self_attn", False),
        ("*.1?.*", "layers.12.attn", True),
        (r"re:layers\.\d\.attn", "layers.3.attn", True),
        (r"re:layers\.\d", "layers.3.attn", False),
        (("a", "b"), "b", True),
    ],
)
def test_names_are_matched_by_patterns(patterns, name, is_meant):
    assert SparsityConfig(modules=patterns).matches(name) is is_meant


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError, match=re.escape("cannot assign to field 'alpha'")):
        SparsityConfig().alpha = "fixed"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"init_alpha": "x"}, "init_alpha must be a number; got 'x'"),
        ({"high": None}, "high must be a number; got None"),
        ({"tie_heads": "yes"}, "tie_heads must be True or False; got 'yes'"),
        ({"modules": 5}, "modules must be a string or several; got 5"),
        ({"attention": (1,)}, r"attention must be a string or several; got \(1,\)"),
        ({"heads": 2}, "heads must be a tuple of integers, or None for all; got 2"),
        ({"heads": "01"}, "heads must be a tuple of integers, or None for all; got '01'"),
    ],
    ids=str,
)
def test_wrong_types_are_named(wrong, message):
    """They ended in "'int' object is not iterable" and the like, or were taken."""
    with pytest.raises(TypeError, match=message):
        SparsityConfig(**wrong)
