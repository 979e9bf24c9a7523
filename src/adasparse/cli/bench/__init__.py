"""``adasparse bench``: timings against baselines; one file per command."""
