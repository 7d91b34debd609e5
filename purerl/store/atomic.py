"""Files and folders that are replaced atomically: they are there whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a path beside ``path`` to write to; its file replaces ``path`` when the block ends without an error.

    After an error that file is removed, and ``path`` stays as it was. A file that is made with `open` has the mode that
    the umask allows. A file or a symbolic link at either path is replaced; a link is not written through.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside ``path`` to write into; it replaces ``path`` when the block ends without an error.

    After an error it is removed, and ``path`` stays as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
