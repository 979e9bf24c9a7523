"""Tokens of recorded sentences: their text, their words and their annotations."""
