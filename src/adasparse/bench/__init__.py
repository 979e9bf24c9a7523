"""Benchmarks of operators and attention, as run by ``adasparse bench``."""
