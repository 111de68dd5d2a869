"""Writing files so that a reader, or a crash, never sees half of one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Writes under a temporary name in the same folder, then renames. The folder must exist."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def copy_folder(source: Path, target: Path) -> None:
    """Copies under a temporary name, then renames; a ``target`` that appears meanwhile stays.

    Raises:
        OSError: about the first path that cannot be copied; then there is no ``target``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name[:40]}.") as place:
        made = Path(place) / target.name
        for path in (source, *sorted(source.rglob("*"))):
            copy = made / path.relative_to(source)
            try:
                copy.mkdir() if path.is_dir() else shutil.copyfile(path, copy)
            except OSError as error:
                reason = f"cannot be copied to {target}: {error.strerror}"
                raise OSError(error.errno, reason, str(path)) from error
        try:
            made.rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
