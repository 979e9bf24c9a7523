"""Other libraries in commands: they work, and say nothing."""

import os


def hush_transformers() -> None:
    """Keep warnings and progress bars of transformers off the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def is_first_process() -> bool:
    """Tell whether this process speaks for all that torchrun or accelerate started."""
    return os.environ.get("RANK", "0") == "0"
