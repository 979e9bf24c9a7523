import re
import time
from dataclasses import dataclass
from typing import Literal

import pytest
import yaml

from adasparse.training import check_recipe, read_recipe, write_recipe
from adasparse.translation.recipe import TranslationRecipe
from support.small_runs import SETTINGS, small_recipe

MINIMAL = {"data": "d", "output": "o"}


def write(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_and_changes_make_a_recipe(tmp_path):
    path = write(tmp_path, "data: d\noutput: o\nwidth: 64\nlearning_rate: 2e-3  # text in YAML\n")
    recipe = read_recipe(TranslationRecipe, path, ["width=128", "bf16=true", "threads=null"])
    assert (recipe.width, recipe.learning_rate, recipe.bf16, recipe.threads) == (
        128,
        2e-3,
        True,
        None,
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"], ids=repr)
def test_an_empty_file_is_no_recipe(tmp_path, text):
    """It used to start a training of 100,000 updates with the defaults."""
    with pytest.raises(ValueError, match=r"recipe.yaml is empty"):
        read_recipe(TranslationRecipe, write(tmp_path, text), ["data=d", "output=o"])


def bomb(levels):
    """A few lines that stand for 10 to the power of ``levels`` values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join([*lines, f"width: *a{levels - 1}", "data: d", "output: o"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(9), r"aliases such as \*a0 are not supported"),
        ("[" * 100_000, "nested 4 deep at most"),
        ("width: " + "[" * 100_000, "nested 4 deep at most"),
        ("{a: " * 100_000, "nested 4 deep at most"),
        ("a: b\n" * 300_000, "at most 1,048,576 bytes; it is no recipe"),
        ("width: 16\nheads: 2\nwidth: 32", "each key may be given once; got 'width' twice"),
        ("width: 1\0", "special characters are not allowed"),
    ],
    ids=lambda x: x[:12],
)
def test_files_that_are_traps_are_refused_at_once(tmp_path, text, message):
    """Some used to end in a RecursionError, others never."""
    path, start = write(tmp_path, text), time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        read_recipe(TranslationRecipe, path)
    assert time.process_time() - start < 5
    assert len(str(caught.value).splitlines()) == 1


def test_long_values_are_shown_in_part():
    with pytest.raises(ValueError, match="width must be an integer") as caught:
        check_recipe(TranslationRecipe, {**MINIMAL, "width": list(range(10**6))})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_steps": 1e30}, "max_steps must be at most 1,000,000,000; got 1000000000000000"),
        ({"width": 10**12}, "width must be at most 1,000,000,000; got 1000000000000"),
        ({"seed": 2**32}, "seed must be at most 4,294,967,295; got 4294967296"),
        ({"workers": 10**6}, "workers must be at most 1,024; got 1000000"),
        ({"encoder_layers": 10**6}, "encoder_layers must be at most 1,000; got 1000000"),
        ({"eval_beam": 5000}, "eval_beam must be at most 256; got 5000"),
        ({"alpha_lr_factor": -1}, "alpha_lr_factor must be between 0 and 1,000,000,000; got -1.0"),
        (
            {"alpha_lr_factor": "inf"},
            "alpha_lr_factor must be between 0 and 1,000,000,000; got inf",
        ),
        ({"learning_rate": 1e30}, "learning_rate must be above 0 and at most 1,000; got 1e.30"),
        ({"weight_decay": 1e30}, "weight_decay must be between 0 and 1,000; got 1e.30"),
    ],
    ids=str,
)
def test_slips_of_the_keyboard_are_told(values, message):
    with pytest.raises(ValueError, match=message):
        check_recipe(TranslationRecipe, {**MINIMAL, **values})


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("max_steps=1e5", "max_steps", 100_000),
        ("max_steps=2.0", "max_steps", 2),
        ("max_steps=1_000", "max_steps", 1000),
        ("learning_rate=1", "learning_rate", 1.0),
        ("output=1.10", "output", "1.10"),
        ("output=2026-01-01", "output", "2026-01-01"),
        ("output=a=b", "output", "a=b"),
        ("output=yes", "output", "yes"),
        (" width =64", "width", 64),
    ],
)
def test_values_are_read_as_what_their_key_takes(tmp_path, change, key, value):
    path = write(tmp_path, yaml.safe_dump(MINIMAL))
    found = getattr(read_recipe(TranslationRecipe, path, [change]), key)
    assert found == value
    assert type(found) is type(value)


def test_recipes_survive_a_round_trip(tmp_path):
    recipe = small_recipe(tmp_path / "ü: 1", learning_rate=1 / 3, threads=None)
    write_recipe(recipe, tmp_path / "x.yaml")
    assert read_recipe(TranslationRecipe, tmp_path / "x.yaml") == recipe
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_unknown_keys_are_told_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown key 'widht' \(the keys are .*max_steps.*width"):
        check_recipe(TranslationRecipe, {**MINIMAL, "widht": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": "wide"}, "width must be an integer; got 'wide'"),
        ({"width": 2.5}, "width must be an integer; got 2.5"),
        ({"width": True}, "width must be an integer; got True"),
        ({"width": float("inf")}, "width must be an integer; got inf"),
        ({"width": float("nan")}, "width must be an integer; got nan"),
        ({"width": [1]}, r"width must be an integer; got \[1\]"),
        ({"width": None}, "width must be an integer; got None"),
        ({"dropout": "much"}, "dropout must be a number; got 'much'"),
        ({"dropout": False}, "dropout must be a number; got False"),
        ({"bf16": 1}, "bf16 must be true or false; got 1"),
        ({"data": None}, "data must be text; got None"),
        ({"data": {"a": 1}}, "data must be text; got {'a': 1}"),
        ({"attention": "linear"}, "must be one of softmax, entmax, adaptive; got 'linear'"),
        ({"attention": ["softmax"]}, "attention must be one of"),
        ({"threads": "all"}, "threads must be an integer; got 'all'"),
        ({"threads": 0}, "threads must be at least 1; got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\); got 1.0"),
        ({"dropout": "nan"}, r"dropout must be in \[0, 1\); got nan"),
        ({"learning_rate": 0}, "learning_rate must be above 0 and at most 1,000; got 0.0"),
        ({"adam_beta2": 1}, "adam_beta2 must be between 0 and 1; got 1.0"),
        ({"weight_decay": -1}, "weight_decay must be between 0 and 1,000; got -1.0"),
        ({"max_steps": 0}, "max_steps must be at least 1; got 0"),
        ({"keep": 1, "average": 1}, "keep must be at least 2; got 1"),
        ({"keep": 3, "average": 4}, "keep must be at least average.* got keep=3 and average=4"),
        ({"width": 15, "heads": 5}, "width must be even and a multiple.* got width=15 and heads=5"),
        ({"width": 16, "heads": 3}, "got width=16 and heads=3"),
        ({"alpha": 2.0}, r"alpha must lie strictly between low=1.0 and high=2.0.*; got 2.0"),
        ({"attention": "entmax", "alpha": 0.5}, "alpha must be at least 1 and finite; got 0.5"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_told(values, message):
    with pytest.raises(ValueError, match=message):
        check_recipe(TranslationRecipe, {**MINIMAL, **values})


def test_all_mistakes_are_told_at_once():
    wrong = {"output": "o", "widht": 3, "heads": "two", "dropout": 2, "max_steps": 0}
    with pytest.raises(ValueError, match="The recipe has mistakes") as error:
        check_recipe(TranslationRecipe, wrong)
    message = str(error.value)
    assert message.count("The recipe has mistakes") == 1
    for part in ("unknown key 'widht'", "heads must be an integer; got 'two'",
                 "data is missing: give data=...", "dropout must be in [0, 1); got 2.0",
                 "max_steps must be at least 1; got 0"):  # fmt: skip
        assert part in message
    assert "output" not in message.partition("(the keys are")[0]


def test_a_missing_number_is_told():
    @dataclass(frozen=True, kw_only=True)
    class Recipe:
        size: int
        kind: Literal["a", "b"] = "a"

    with pytest.raises(
        ValueError, match=r"^The recipe has mistakes: size is missing: give size=...\.$"
    ):
        check_recipe(Recipe, {})
    assert check_recipe(Recipe, {"size": 2}) == Recipe(size=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must be a mapping of keys to values"),
        ("just text", "must be a mapping of keys to values"),
        ("a: [1\n", "must be YAML"),
        ("a: 1\n\tb: 2\n", "must be YAML"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        read_recipe(TranslationRecipe, path)
    assert str(path) in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="must be YAML"):
        read_recipe(TranslationRecipe, path)


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "no.yaml"
    with pytest.raises(ValueError, match=re.escape(f"there is no file {path}")):
        read_recipe(TranslationRecipe, path)


@pytest.mark.parametrize("change", ["width", "=3", " =3"])
def test_changes_must_be_key_and_value(tmp_path, change):
    with pytest.raises(ValueError, match=re.escape(f"must be key=value; got {change!r}")):
        read_recipe(TranslationRecipe, write(tmp_path, yaml.safe_dump(MINIMAL)), [change])


def test_a_change_that_is_no_yaml_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"value of 'width=\[1' must be YAML"):
        read_recipe(TranslationRecipe, write(tmp_path, yaml.safe_dump(MINIMAL)), ["width=[1"])


@pytest.mark.parametrize("attention", ["softmax", "entmax", "adaptive"])
def test_attention_becomes_a_configuration(attention):
    sparsity = TranslationRecipe(**{**MINIMAL, **SETTINGS, "attention": attention}).sparsity()
    modes = {"softmax": None, "entmax": "fixed", "adaptive": "learned"}
    assert (None if sparsity is None else sparsity.alpha) == modes[attention]
