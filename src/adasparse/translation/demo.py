"""Deprecated: the demo is in :mod:`adasparse.demo`."""

from adasparse._deprecated import moved_names

__getattr__ = moved_names(
    __name__,
    {name: f"adasparse.demo.run:{name}" for name in ("DemoResult", "run_demo")},
)
