"""``adasparse tasks``: one file per command."""
