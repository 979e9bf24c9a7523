"""The runs behind the results pages: declared, trained piece by piece, and reported from logs.

See ``__main__.py`` for the commands, ``experiments.yaml`` for the runs.
"""
