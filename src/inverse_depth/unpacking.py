"""Unpacking a zip that a stranger made: every entry is checked before anything is written."""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

MOST_ENTRIES, MOST_BYTES, MOST_TEXT_BYTES = 10_000, 4 * 2**30, 2**26
"""Most files, most bytes in all when unpacked, and most of a file that is no NetCDF, that an archive may hold."""

_DEFLATE_RATIO = 1032  # the most by which deflate shortens anything
_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class ArchiveError(ValueError):
    """An archive that must not be unpacked, or does not hold what it says; the message names the file."""


def unpack(path: Path, root: Path) -> list[str]:
    """Unpack an archive into a new folder, and list its files; nothing is written unless all of its entries are safe.

    Raises
    ------
    ArchiveError
        For names that are not plain paths below the folder, or of which two may mean one file; links and folders;
        entries that are encrypted or of another compression than deflate; and absurd sizes.
    """
    if not path.is_file():
        raise ArchiveError(f"{path}: no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_entries(entries)
            for entry in entries:
                target = root / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file)  # which gives no more bytes than the entry says it has
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise ArchiveError(f"{path}: cannot be read as a zip: {error}") from error
    return [entry.filename for entry in entries]


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ArchiveError(f"{len(entries)} entries: at most {MOST_ENTRIES} are allowed")
    if (size := sum(entry.file_size for entry in entries)) > MOST_BYTES:
        raise ArchiveError(f"{size} bytes when unpacked: at most {MOST_BYTES} are allowed")
    seen: set[str] = set()
    for entry in entries:
        _check_entry(entry)
        if (name := entry.filename.casefold()) in seen:
            raise ArchiveError(f"{entry.filename!r}: is there twice, or differs from another only in case")
        seen.add(name)
    for entry in entries:
        if any(str(folder).casefold() in seen for folder in PurePosixPath(entry.filename).parents):
            raise ArchiveError(f"{entry.filename!r}: lies in what is itself a file")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or kind not in (0, stat.S_IFREG):
        raise ArchiveError(f"{name!r}: a folder, a link or the like; only plain files are allowed")
    if entry.filename != name or not all(_PART.fullmatch(part) for part in name.split("/")):
        raise ArchiveError(
            f"{name!r}: the name is absolute, leads out of the archive's folder or is not in its plainest form; "
            "allowed are letters, digits, '_', '-' and '.', as in cubes/softmax_easy.nc"
        )
    if entry.flag_bits & 0x41:
        raise ArchiveError(f"{name!r}: is encrypted, which is not allowed")
    if entry.compress_type not in _METHODS:
        raise ArchiveError(
            f"{name!r}: is compressed by method {entry.compress_type}; only 0 (none) and 8 (deflate) are allowed"
        )
    if entry.file_size > _DEFLATE_RATIO * entry.compress_size:
        raise ArchiveError(
            f"{name!r}: {entry.compress_size} bytes are said to hold {entry.file_size}; deflate shortens at most "
            f"{_DEFLATE_RATIO} times"
        )
    if entry.file_size > MOST_TEXT_BYTES and not name.endswith(".nc"):
        raise ArchiveError(f"{name!r}: {entry.file_size} bytes; at most {MOST_TEXT_BYTES} are allowed but for .nc")
