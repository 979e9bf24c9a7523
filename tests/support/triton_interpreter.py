"""Triton's interpreter in less than half the time: it patches its language once for each launch.

As of 3.7 it does so at every call of a device function, which takes longer than the call.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

import triton.language as tl
from triton.runtime import interpreter


def patch_once_for_each_launch() -> None:
    """Have calls of device functions patch only what the launch has not patched yet."""
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[str] = set()

    @functools.cache
    def modules_of(fn: Callable[..., Any]) -> frozenset[str]:
        """Those that are patched and that a function sees."""
        return frozenset(x.__name__ for x in (tl, tl.core) if x in fn.__globals__.values())

    def patch_lang(fn: Callable[..., Any]) -> Any:
        if modules_of(fn) <= patched:
            return None  # only the launch, which comes first, uses the result
        patched.update(modules_of(fn))
        return patch(fn)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        patched.clear()  # the launch before has restored the language
        return launch(self, *args, **kwargs)

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = call
