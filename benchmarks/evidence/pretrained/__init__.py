"""Pretrained models made sparse: fetched from PyPI, measured against α, and fine-tuned."""
