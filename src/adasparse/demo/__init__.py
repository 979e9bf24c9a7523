"""The demo: a translation model trained in minutes on a synthetic German-English corpus."""

from adasparse.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]
