"""Recipe files: YAML and changes from the command line, read as a checked dataclass."""

import reprlib
import types
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from adasparse._files import write_atomically
from adasparse.training.recipe import MISTAKES

Recipe = TypeVar("Recipe")

#: Size and depth beyond which a file is no recipe.
_MOST_BYTES, _MOST_DEPTH = 2**20, 4

#: Shows values in messages, the longest of them in part.
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def read_recipe(cls: type[Recipe], path: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Return the recipe in a YAML file, as ``cls``, with ``key=value`` changes.

    Args:
        cls: A keyword-only dataclass; it checks values on construction.
        path: The file: one mapping of keys to plain values.
        changes: Texts ``key=value``, values as in YAML; text is taken as it is.

    Raises:
        ValueError: With all that is wrong: unknown keys, missing keys, values of another type.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"A recipe must be a YAML file; there is no file {path}.")
    values = load_yaml(path)
    if values is None:
        raise ValueError(f"A recipe must be a mapping of keys to values; {path} is empty.")
    if not isinstance(values, dict):
        raise ValueError(f"A recipe must be a mapping of keys to values; {path} is not.")
    return check_recipe(cls, {**values, **_read_changes(cls, changes)})


def load_yaml(path: Path) -> object:
    """Return the content of a YAML file of plain values and lists of them.

    Raises:
        ValueError: If it is not YAML, longer than any recipe, deeply nested, or if it has aliases,
            with which a few lines stand for more values than memory holds.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} must have at most {_MOST_BYTES:,} bytes; it is no recipe.")
    try:
        return _load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} must be YAML: {_one_line(error)}.") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _load(text: str) -> object:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"aliases such as *{event.anchor} are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            raise ValueError(f"values may be nested {_MOST_DEPTH} deep at most")
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if isinstance(node, yaml.MappingNode):
        _check_keys([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
    return None if node is None else loader.construct_document(node)


def _check_keys(keys: list[str]) -> None:
    """Refuse a key that is given twice: YAML would take its last value without a word."""
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise ValueError(f"each key may be given once; got {_short.repr(twice[0])} twice")


def _read_changes(cls: type[Any], changes: Iterable[str]) -> dict[str, Any]:
    hints, found = get_type_hints(cls), {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"A change of a recipe must be key=value; got {_short.repr(change)}.")
        key = key.strip()
        try:
            found[key] = value if hints.get(key) is str else _load(value)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(
                f"The value of {_short.repr(change)} must be YAML: {_one_line(error)}."
            ) from error
    return found


def check_recipe(cls: type[Recipe], values: Mapping[str, Any]) -> Recipe:
    """Return ``cls`` of these values, or tell all that is wrong with them at once."""
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    mistakes, given = [], {}
    unknown = [_short.repr(key) for key in values if key not in known]
    if unknown:
        keys = ", ".join(sorted(known))
        mistakes.append(f"unknown key {', '.join(unknown[:9])} (the keys are {keys})")
    for key, value in values.items():
        if key not in known:
            continue
        try:
            given[key] = _convert(value, hints[key])
        except ValueError as error:
            mistakes.append(f"{key} must be {error}; got {_short.repr(value)}")
    needed = [
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING
    ]
    mistakes += [f"{name} is missing: give {name}=..." for name in needed if name not in values]
    # Text that is missing is empty for now, so that the class checks the other values.
    empty = {name: "" for name in needed if name not in given and hints[name] is str}
    try:
        recipe = cls(**{**empty, **given})
    except ValueError as error:
        mistakes.append(str(error).removeprefix(MISTAKES).removesuffix("."))
    except TypeError:  # a value that is no text is missing
        assert mistakes
    if mistakes:
        raise ValueError(f"{MISTAKES}{'; '.join(mistakes)}.")
    return recipe


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
    if origin is tuple:
        if isinstance(value, list):
            return tuple(_convert(x, get_args(hint)[0]) for x in value)
        raise ValueError("a list such as [1, 2]")
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    if hint is float and number is not None:
        return number
    if hint is int and number is not None and number.is_integer():
        return int(number)
    names = {bool: "true or false", str: "text", int: "an integer", float: "a number"}
    raise ValueError(names[hint])


def _number(value: Any) -> float | None:
    """Return a number, also of text: YAML takes 2e-3 for that."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def write_recipe(recipe: Any, path: str | Path) -> None:
    """Write a recipe as YAML, every value spelled out."""
    write_atomically(path, yaml.safe_dump(asdict(recipe), sort_keys=False, allow_unicode=True))
