"""Stand-ins for other packages: the same names and arguments on top of adasparse."""
