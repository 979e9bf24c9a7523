"""``python -m adasparse`` is the command ``adasparse``, for torchrun."""

from adasparse.cli.main import main

main()
