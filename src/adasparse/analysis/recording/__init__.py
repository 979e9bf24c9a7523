"""Recordings of attention: from a model to sparse weights of every head."""
