"""``adasparse lm``: one file per command."""
