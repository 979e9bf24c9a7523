"""Files: atomic writing, hashes, reading of UTF-8 text, and errors of the system in words."""

import errno
import gzip
import hashlib
import io
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
#: Beginnings of names of open streams, which may be files that others write to as well.
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")
#: Seconds to wait for a program that writes into a pipe.
_PATIENCE = 60.0
#: End of a message of a library in Rust, which has errors of its own for those of the system.
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")
#: Message of NumPy where a disk takes less than it is given; it has lost the number.
_NUMPY_ERROR = re.compile(r"^\d+ requested and \d+ written$")


def _number(error: BaseException) -> int | None:
    """Return the number of an error of the operating system; libraries in Rust have it as text."""
    rust = _RUST_ERROR.search(str(error))
    if rust:
        return int(rust[1])
    if not isinstance(error, OSError):
        return None
    return errno.ENOSPC if _NUMPY_ERROR.match(str(error)) else error.errno


def is_system_error(error: BaseException) -> bool:
    """Tell whether an error is the operating system's, also as libraries in Rust raise it."""
    return isinstance(error, OSError) or _number(error) is not None


def in_words(error: BaseException) -> str:
    """Return the message of an error; one of the operating system names its file, not its number.

    Example:
        >>> in_words(OSError(2, "No such file or directory", "a.txt"))
        'a.txt cannot be used: No such file or directory.'
    """
    number = _number(error)
    if number is None:
        return str(error)
    given = [getattr(error, name, None) for name in ("filename", "filename2")]
    names = " and ".join(_shortened(os.fsdecode(x)) for x in given if x)
    said = getattr(error, "strerror", None) or os.strerror(number)
    return f"{names} cannot be used: {said}." if names else f"{said}."


@contextmanager
def errors_named(path: str | Path) -> Iterator[None]:
    """Name a path in errors of the operating system that name none, such as of a full disk."""
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number is None or getattr(error, "filename", None):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _shortened(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:90]} … {name[-90:]}"


def write_with(
    path: str | Path, write: Callable[[Path], object], *, make_folders: bool = False
) -> None:
    """Have ``write`` fill a file under a temporary name, then rename it: never half written.

    The content is on the disk before the name is. A link stays, and the file that it names is
    written; a device or a pipe stays, and gets the content.

    Args:
        path: Path of the file.
        write: Called with the temporary path.
        make_folders: Whether to create the folders on the way.
    """
    path = Path(path)
    if make_folders:
        path.parent.mkdir(parents=True, exist_ok=True)
    with errors_named(path):
        if _is_special(path):
            _write_through(path, write)
        else:
            target = Path(os.path.realpath(path)) if path.is_symlink() else path
            _replace_with(target, write)


def _replace_with(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Tell whether a path is a device, a pipe or an open stream, not a file to replace."""
    is_other = path.exists() and not path.is_file() and not path.is_dir()
    return is_other or str(path).startswith(_STREAMS)


def _write_through(path: Path, write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / path.name
        write(temporary)
        with path.open("ab") as file:
            file.write(temporary.read_bytes())


def check_output_file(path: Path) -> None:
    """Refuse a file that could not be written, before the work that fills it."""
    if path.is_dir():
        raise ValueError(f"The output must be a file; {path} is a folder.")
    folder = path.resolve().parent
    if not _is_special(path) and not folder.is_dir():
        raise ValueError(f"The folder of {path} must exist; there is no {folder}.")
    _check_access(path, path if path.exists() else folder)


def check_output_folder(path: Path) -> None:
    """Refuse a folder that could not be made or written, before the work that fills it.

    Raises:
        FileExistsError: It is a file or a link to nothing, or a file is on its way.
        PermissionError: It is write-protected, or the folder that it would be made in.
        ValueError: Its name is no Unicode, which not every library can write to.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"The name of the output must be Unicode; got {str(path)!r}.") from None
    wanted = f"The output must be a folder; {path}"
    if path.is_symlink() and not path.exists():
        raise FileExistsError(f"{wanted} is a link to nothing.")
    nearest = next(x for x in (path, *path.absolute().parents) if x.exists())
    if not nearest.is_dir():
        where = "is" if nearest == path else f"cannot be made, since {nearest} is"
        raise FileExistsError(f"{wanted} {where} a file.")
    _check_access(path, nearest)


def _check_access(path: Path, written: Path) -> None:
    if not os.access(written, os.W_OK):
        raise PermissionError(f"{path} cannot be written: {written} is write-protected.")


def write_atomically(path: str | Path, content: str | bytes, *, make_folders: bool = False) -> None:
    """Write text in UTF-8, or bytes: the file is there whole or not at all."""
    data = content.encode() if isinstance(content, str) else content
    write_with(path, lambda temporary: temporary.write_bytes(data), make_folders=make_folders)


def sync(path: str | Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class TextFile:
    """A UTF-8 text file, plain or gzip (recognized by its content), read once from front to end.

    Only a newline (or a carriage return and a newline) ends a line: the other separators of Unicode
    are text. After the last line, ``num_lines`` and ``sha256`` (of the bytes on disk) are those of
    the whole file.

    Args:
        path: Path of the file.
        stream: Read this instead; the path is its name in messages.
        may_be_empty: Whether a file without a single line is accepted.
    """

    def __init__(
        self, path: str | Path, *, stream: BinaryIO | None = None, may_be_empty: bool = False
    ) -> None:
        self.path, self._stream, self._may_be_empty = Path(path), stream, may_be_empty
        if stream is None and not self.path.exists():
            raise FileNotFoundError(f"There is no file {self.path}.")
        if stream is None and self.path.is_dir():
            raise IsADirectoryError(f"A text file is needed; {self.path} is a folder.")
        self.num_lines = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Hash of what was read so far, in hexadecimal."""
        return self._digest.hexdigest()

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends; a byte order mark at the beginning is skipped.

        Raises:
            ValueError: Names the line that is not UTF-8 or has a NUL byte, or says that the file
                is empty or its compression damaged.
        """
        return (self._decode(line.removesuffix(b"\n")) for line in self._raw_lines())

    def text(self) -> str:
        """Return the whole text, with newlines alone as line ends; raises as ``lines`` does."""
        return "".join(
            self._decode(line.removesuffix(b"\n")) + "\n" * line.endswith(b"\n")
            for line in self._raw_lines()
        )

    def _raw_lines(self) -> Iterator[bytes]:
        stream = self._stream or _open(self.path)
        with io.BufferedReader(_HashingReader(stream, self._digest), 1 << 17) as raw:
            is_gzip = raw.peek(2)[:2] == _GZIP
            text = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if is_gzip else raw
            try:
                for line in text:
                    self.num_lines += 1
                    yield line
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(
                    f"{self.path} must be a whole gzip file; it is damaged or cut off after line "
                    f"{self.num_lines} ({error})."
                ) from error
        if self.num_lines == 0 and not self._may_be_empty:
            raise ValueError(f"{self.path} must have text; it is empty.")

    def _decode(self, line: bytes) -> str:
        if self.num_lines == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\r")
        if b"\0" in line:
            raise ValueError(
                f"{self.path} must be UTF-8 text; line {self.num_lines} has a NUL byte. Is it "
                "UTF-16? Convert it: iconv -f UTF-16 -t UTF-8."
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} must be UTF-8; line {self.num_lines} is not, at its byte "
                f"{error.start + 1} (0x{line[error.start]:02x}: {error.reason}). If it is "
                "Latin-1, convert it: iconv -f LATIN1 -t UTF-8."
            ) from error


def _open(path: Path) -> BinaryIO:
    """Open a file to read it; a pipe that nobody opens to write is an error, in the end."""
    if not path.is_fifo():
        return path.open("rb", buffering=0)
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(path.open, "rb", buffering=0)
        try:
            return opening.result(_PATIENCE)
        except BaseException as error:  # Ctrl-C, too, must not wait for the thread
            opening.add_done_callback(lambda opened: opened.result().close())
            with suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            if not isinstance(error, TimeoutError):
                raise
            raise ValueError(
                f"{path} is a pipe; nothing opened it to write within {_PATIENCE:g} seconds."
            ) from None


class _HashingReader(io.RawIOBase):
    """The bytes of a file, hashed while they pass: a pipe can be read only once."""

    def __init__(self, file: BinaryIO, digest: "hashlib._Hash") -> None:
        self._file, self._digest = file, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._digest.update(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
