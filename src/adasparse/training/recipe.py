"""Recipes: a YAML file and changes from the command line, as a checked dataclass."""

import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from adasparse.training.files import write_text

Recipe = TypeVar("Recipe")


def read_recipe(cls: type[Recipe], path: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Return the recipe in a YAML file, as ``cls``, with ``key=value`` changes.

    Args:
        cls: A keyword-only dataclass; it checks values on construction.
        path: The file: one mapping of keys to plain values.
        changes: Texts ``key=value``, values as in YAML.

    Raises:
        ValueError: With all that is wrong: unknown keys, missing keys, values of another type.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"A recipe must be a YAML file; there is no file {path}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ValueError(f"A recipe must be a mapping of keys to values; {path} is not.")
    return check_recipe(cls, {**values, **_read_changes(changes)})


def _read_changes(changes: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"A change of a recipe must be key=value; got {change!r}.")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"The value of {change!r} is not YAML: {error}") from error
    return found


def check_recipe(cls: type[Recipe], values: Mapping[str, Any]) -> Recipe:
    """Return ``cls`` of these values, or tell all that is wrong with them at once."""
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    mistakes, given = [], {}
    for key, value in values.items():
        if key not in known:
            mistakes.append(f"unknown key {key!r} (the keys are {', '.join(sorted(known))})")
            continue
        try:
            given[key] = _convert(value, hints[key])
        except ValueError as error:
            mistakes.append(f"{key} must be {error}; got {value!r}")
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is field.default_factory  # both are MISSING
    ]
    mistakes += [f"{name} is missing: give {name}=..." for name in missing]
    if mistakes:
        raise ValueError("The recipe has mistakes: " + "; ".join(mistakes) + ".")
    return cls(**given)


def _convert(value: Any, hint: Any) -> Any:
    """Return a value of YAML as the type of a field; the error says what the type is."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if value is None and len(options) < len(get_args(hint)):
            return None
        return _convert(value, options[0])
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise ValueError(f"one of {', '.join(map(str, get_args(hint)))}")
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    if hint is int and isinstance(value, (int, float)) and not isinstance(value, bool):
        if value == int(value):
            return int(value)
    elif hint is float and not isinstance(value, bool):
        try:  # YAML takes 2e-3 for text
            return float(value)
        except (TypeError, ValueError):
            pass
    names = {bool: "true or false", str: "text", int: "an integer", float: "a number"}
    raise ValueError(names[hint])


def write_recipe(recipe: Any, path: str | Path) -> None:
    """Write a recipe as YAML, every value spelled out."""
    write_text(path, yaml.safe_dump(asdict(recipe), sort_keys=False, allow_unicode=True))
