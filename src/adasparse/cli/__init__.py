"""The ``adasparse`` command: one file per subcommand."""
