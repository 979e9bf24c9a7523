"""Kernels: they compute, and choose nothing.

Each module offers the same functions over rows: ``scores`` of shape ``(rows, n)``, contiguous,
and ``alpha`` in float64, one value for all rows or one per row.

- ``reference`` is the slow float64 oracle of the tests;
- ``plain`` is PyTorch alone, for any device, and differentiable any number of times;
- ``cpu`` calls the compiled C++ core.
"""
