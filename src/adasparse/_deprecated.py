"""Old names of moved objects, still found for a while, with a DeprecationWarning."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` under which a module still offers names that live elsewhere now.

    Args:
        module: Name of the module, for messages.
        names: New places by old name: ``"package.module"`` for a module, ``"package.module:name"``
            for anything in one.
    """

    def getattr_moved(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, attribute = names[name].partition(":")
        warnings.warn(
            f"{module}.{name} has moved and will be removed in version 0.3; "
            f"use {names[name].replace(':', '.')}.",
            DeprecationWarning,
            stacklevel=2,
        )
        found = importlib.import_module(place)
        return getattr(found, attribute) if attribute else found

    return getattr_moved
