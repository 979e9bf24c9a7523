"""``adasparse bench``: how long things take next to known ones; one file per command."""
