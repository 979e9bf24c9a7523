"""Dispersion of attention in long contexts."""
