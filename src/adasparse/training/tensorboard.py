"""TensorBoard files of a run; a disk that cannot take them does not end training."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.integrations.integration_utils import TensorBoardCallback

from adasparse._files import in_words


class TensorBoardLog(TensorBoardCallback):
    """Writes scalars for TensorBoard until the disk refuses one.

    Args:
        folder: Folder of the files.
        report: Receives a message if they cannot be written.
    """

    def __init__(self, folder: str | Path, report: Callable[[str], None]) -> None:
        super().__init__()
        self.logging_dir = str(folder)
        self._report = report
        self._is_failed = False
        self._hook = threading.excepthook

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Open a file."""
        self._hook, threading.excepthook = threading.excepthook, self._ignore_own
        self._try(super().on_train_begin, *args, **kwargs)

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        """Write what is logged."""
        self._try(super().on_log, *args, **kwargs)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Close the file."""
        self._try(super().on_train_end, *args, **kwargs)
        self.restore()

    def restore(self) -> None:
        """Give errors of threads back their usual treatment."""
        threading.excepthook = self._hook

    def _try(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if self._is_failed:
            return
        try:
            action(*args, **kwargs)
        except OSError as error:
            self._is_failed, self.tb_writer = True, None
            self._report(
                f"Files for TensorBoard cannot be written: {in_words(error)} Training continues "
                "without."
            )

    def _ignore_own(self, args: threading.ExceptHookArgs) -> None:
        """Say nothing of the thread that writes: the next call raises its error here."""
        if not isinstance(args.exc_value, OSError) or "Writer" not in type(args.thread).__name__:
            self._hook(args)
