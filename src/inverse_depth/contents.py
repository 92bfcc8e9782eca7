"""What a NetCDF-4 file of this package may contain, checked before a library reads an array or attribute of it.

HDF5 can hold far more than NetCDF needs: links and storage that lead to other files, groups that contain each other,
filters that are loaded as code, and few bytes that stand for many. A file of ours is one flat group of numbers and
characters, and what else is found is refused.
"""

from __future__ import annotations

import functools
import io
import itertools
import math
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py

MOST_FILE_BYTES = 2**30
"""How large a file may be, for it is checked and read in memory: 1 GiB, a thousand times what the paper's cubes are."""

MOST_BYTES = 2**32
"""What the arrays of a file may take in memory: 4 GiB."""

MOST_VARIABLES, MOST_ATTRIBUTES, MOST_ATTRIBUTE_BYTES, MOST_CHUNKS = 1000, 100, 2**24, 2**16
"""Variables of a file; attributes of each of them; bytes of all attributes together; chunks of an array."""

MOST_CHARACTERS, LONGEST_NAME = 2**20, 256
"""Of all arrays of characters together, each of which becomes an object of Python; and NetCDF's own limit."""

_DEFLATE_RATIO = 1032
"""The most by which deflate shortens anything, so that a file of n bytes holds at most this many times n."""

MOST_HEAP_OBJECTS = 2**20
"""Of all its texts of any length, and references of axes to dimensions."""

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LISTS = {bytes([version << 4 | 9]) for version in (1, 2, 3, 4, 5)}
"""How the message of a type of any length begins: with the version of the message, and class 9."""

_PACKING = ("scale_factor", "add_offset", "missing_value", "_Unsigned")
"""Attributes by which a reader would turn an array into a larger one; this package writes numbers as they are."""


class ContentsError(ValueError):
    """What a file contains and must not; the message says where, what was found and what is allowed."""


class FormatError(ContentsError):
    """A file that is no NetCDF-4 file."""


def check_contents(body: bytes) -> None:
    """Check all that a NetCDF-4 file contains; no other file is opened, and no array is read.

    Parameters
    ----------
    body : bytes
        The file.

    Raises
    ------
    ContentsError
        If it holds what no file of this package does.
    """
    import h5py

    if not body.startswith(_SIGNATURE):
        raise FormatError(f"it begins with {body[:8]!r}, a NetCDF-4 file with {_SIGNATURE!r}")
    sizes, base = (13, 24) if body[8:9] == b"\0" else (9, 12)  # where versions 0, and 2 and 3 of the header have them
    if body[sizes : sizes + 2] != b"\x08\x08" or body[base : base + 8] != bytes(8):
        raise FormatError("its addresses and lengths are not of 8 bytes each, from the file's start")
    _check_heaps(body)
    _check_indexes(body)
    _check_lengths(body, b"DIMENSION_LIST", 8)
    with h5py.File(io.BytesIO(body), "r") as file:
        variables = _variables(file)
        room = MOST_ATTRIBUTE_BYTES
        for name, owner in [("the file", file), *variables.items()]:
            room -= _check_attributes(name, owner, room, body)
        for name, variable in variables.items():
            _check_values(name, variable)
        _check_sizes(variables, len(body))
        for name, variable in variables.items():
            _check_storage(name, variable)
        _check_dimensions(variables)
        for name, variable in variables.items():
            _check_chunks(name, variable, body)


def _places(body: bytes, mark: bytes) -> Iterator[int]:
    """Give every place at which a mark stands."""
    place = body.find(mark)
    while place >= 0:
        yield place
        place = body.find(mark, place + 1)


def _check_heaps(body: bytes) -> None:
    """Refuse a global heap (of texts and references) in which HDF5, up to 2.0 at least, would go round for ever.

    A heap is a header of 16 bytes, with the heap's size, and objects: a header of 16 bytes each, with number and size,
    and then as many bytes, up to the next multiple of 8. The free space has number 0, and its size includes the header.
    """
    left = MOST_HEAP_OBJECTS
    for start in _places(body, b"GCOL\x01"):
        place, end = start + 16, start + int.from_bytes(body[start + 8 : start + 16], "little")
        if end > len(body):  # which HDF5 refuses
            continue
        while place + 16 <= end:
            size = int.from_bytes(body[place + 8 : place + 16], "little")
            step = 16 + -(-size // 8) * 8 if any(body[place : place + 2]) else size
            left -= 1
            if not 16 <= step <= end - place or left < 0:
                raise ContentsError(f"its heap at byte {start:,} holds an object of {size:,} bytes, or too many")
            place += step


def _check_indexes(body: bytes) -> None:
    """Refuse an index of names (a B-tree and a heap of its own) by whose sizes HDF5, up to 2.0, crashes or never ends.

    Of the heaps' sizes HDF5 knows no others than those here, unless a program asks for them.
    """
    for start in _places(body, b"BTHD\0"):
        kind, node, record, depth = struct.unpack("<BIHH", body[start + 5 : start + 14].ljust(9))
        if kind <= 11 and not (kind and 2**6 <= node <= 2**16 and 4 <= record <= 64 and depth <= 8):
            raise ContentsError(f"its index at byte {start:,} has nodes of {node:,} bytes, with records of {record:,}")
    for start in _places(body, b"FRHP\0"):
        (filters,) = struct.unpack("<H", body[start + 7 : start + 9].ljust(2))
        width, first, largest, bits, rows = struct.unpack("<HQQHH", body[start + 110 : start + 132].ljust(22))
        if filters or (width, largest, rows) != (4, 2**16, 1) or (first, bits) not in ((512, 32), (1024, 40)):
            raise ContentsError(
                f"its heap of names at byte {start:,} has {width:,} blocks in a row, the first of {first:,}"
            )


def _check_lengths(body: bytes, name: bytes, unit: int) -> None:
    """Refuse an attribute of any length, of elements of so many bytes, whose length is not that of what it refers to.

    HDF5, up to 2.0, takes room by the length that the attribute states, and fills it with all that the heap holds. So
    whatever could be the message of such an attribute is read: version, flags, and the sizes of name, type and space;
    these three, each filled up to a multiple of 8 in version 1; and for each element a length, the address of a heap
    and the number of an object in it.
    """
    heap_objects = functools.cache(functools.partial(_heap_objects, body))
    for place in _places(body, name + b"\0"):
        for version, head, step in ((1, 8, 8), (2, 8, 1), (3, 9, 1)):
            found, flags, *sizes = struct.unpack("<BBHHH", body[max(place - head, 0) :][:8].ljust(8))
            if found != version or sizes[0] != len(name) + 1:
                continue
            _, kind, space, start = itertools.accumulate((-(-size // step) * step for size in sizes), initial=place)
            if not flags and body[kind : kind + 1] not in _LISTS:
                continue
            count = _count(body[space:start])
            if (
                flags
                or 16 * count > len(body) - start
                or any(
                    length * unit != heap_objects(heap).get(number, -1)
                    for length, heap, number in struct.iter_unpack("<IQI", body[start : start + 16 * count])
                )
            ):
                raise ContentsError(
                    f"the attribute {name.decode(errors='replace')!r} is not of the length that it states"
                )


def _count(space: bytes) -> int:
    """Count the elements of an attribute by its dataspace, of version 1 or 2."""
    version, axes = space[:2].ljust(2)
    start = 8 if version == 1 else 4
    return math.prod(int.from_bytes(space[i : i + 8], "little") for i in range(start, start + 8 * axes, 8))


def _heap_objects(body: bytes, heap: int) -> dict[int, int]:
    """Give the sizes of the objects of a global heap by their numbers; of number 0, which is none, always."""
    sizes, place, end = {0: 0}, heap + 16, heap + int.from_bytes(body[heap + 8 : heap + 16], "little")
    while body[heap : heap + 5] == b"GCOL\x01" and place + 16 <= min(end, len(body)):
        number, size = struct.unpack("<H6xQ", body[place : place + 16])
        if not number:
            break
        sizes.setdefault(number, size)
        place += 16 + -(-size // 8) * 8
    return sizes


def _variables(file: h5py.File) -> dict[str, Any]:
    """Give the arrays of the root group, and refuse whatever else stands in it."""
    import h5py

    if (count := len(file)) > MOST_VARIABLES:
        raise ContentsError(f"it holds {count:,} variables; allowed are at most {MOST_VARIABLES:,}")
    variables = {}
    for name in file:
        if len(name) > LONGEST_NAME:
            raise ContentsError(f"a name of {len(name):,} characters; allowed are at most {LONGEST_NAME}")
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ContentsError(f"{name!r} is a link ({type(link).__name__}); a file must hold its own data")
        found = h5py.h5o.get_info(file.id, name.encode("utf-8", "surrogateescape"))
        if found.type != h5py.h5o.TYPE_DATASET:
            raise ContentsError(f"{name!r} is a group or a type; allowed are arrays in one flat group")
        if found.rc != 1:
            raise ContentsError(f"{name!r} has {found.rc} names; allowed is one for each array")
        variables[name] = file[name]
    return variables


def _check_attributes(where: str, owner: Any, room: int, body: bytes) -> int:
    """Check the attributes of a variable or the file, and return the bytes that they take, at most `room`."""
    import h5py

    if (count := h5py.h5a.get_num_attrs(owner.id)) > MOST_ATTRIBUTES:
        raise ContentsError(f"{where!r} has {count:,} attributes; allowed are at most {MOST_ATTRIBUTES}")
    taken = 0
    for name in owner.attrs:
        if name in _PACKING:
            raise ContentsError(f"{where!r} has the attribute {name!r}; numbers must be held as they are")
        attribute = owner.attrs.get_id(name)
        kind = attribute.get_type()
        taken += max(attribute.get_storage_size(), math.prod(attribute.shape) * kind.get_size())
        if taken <= room and kind.get_class() == h5py.h5t.STRING and kind.is_variable_str():
            if math.prod(attribute.shape) != 1:  # all may point to the same long text
                raise ContentsError(f"the attribute {name!r} of {where!r} is a list of texts; allowed is one")
            if name in ("CLASS", "NAME"):
                raise ContentsError(f"the attribute {name!r} of {where!r} is not text of a fixed length")
            _check_lengths(body, name.encode("utf-8", "surrogateescape"), 1)
            taken += len(str(owner.attrs[name]))
        if taken > room:
            raise ContentsError(f"attributes of more than {MOST_ATTRIBUTE_BYTES:,} bytes; allowed are no more in all")
        if name in ("DIMENSION_LIST", "REFERENCE_LIST") and isinstance(owner, h5py.Dataset):
            continue  # of the first more below; nothing reads the second
        if kind.get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING):
            raise ContentsError(f"the attribute {name!r} of {where!r} is neither text nor numbers")
        if name == "_Encoding" and owner.attrs[name] not in (b"utf-8", "utf-8"):
            raise ContentsError(f"the '_Encoding' of {where!r} is another than utf-8")
        if name == "_FillValue" and (
            owner.dtype.kind != "f" or attribute.dtype != owner.dtype or attribute.shape != (1,)
        ):
            raise ContentsError(f"the _FillValue of {where!r} is not one float of the array's own kind")
    return taken


def _check_values(name: str, variable: h5py.Dataset) -> None:
    """Refuse an array that lies in other files or holds no plain values."""
    import h5py

    kind, plan = variable.id.get_type(), variable.id.get_create_plist()
    if plan.get_layout() not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) or plan.get_external_count():
        raise ContentsError(f"the variable {name!r} is stored in other files; a file must hold its own data")
    numbers = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) and kind.get_size() <= 8
    characters = kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str() and kind.get_size() == 1
    if not (numbers or characters):
        raise ContentsError(f"the variable {name!r} holds neither numbers nor characters")
    if variable.shape is None:
        raise ContentsError(f"the variable {name!r} has no shape")


def _check_sizes(variables: dict[str, Any], size: int) -> None:
    """Refuse arrays that would take more memory than is allowed, or than a file of this size can hold."""
    declared = sum(variable.size * variable.dtype.itemsize for variable in variables.values())
    if declared > MOST_BYTES:
        raise ContentsError(f"its arrays would take {declared:,} bytes; allowed are at most {MOST_BYTES:,}")
    if declared > _DEFLATE_RATIO * size:
        raise ContentsError(
            f"its arrays are said to take {declared:,} bytes; a file of {size:,} bytes holds at most "
            f"{_DEFLATE_RATIO} times as many"
        )
    characters = sum(variable.size for variable in variables.values() if variable.dtype.kind == "S")
    if characters > MOST_CHARACTERS:
        raise ContentsError(f"its arrays of characters hold {characters:,}; allowed are at most {MOST_CHARACTERS:,}")


def _check_storage(name: str, variable: h5py.Dataset) -> None:
    """Refuse filters other than those built into HDF5, and absurd chunks."""
    import h5py

    filters = _filters(variable)
    allowed = (h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE)
    if not set(filters) <= set(allowed) or len(filters) != len(set(filters)):
        raise ContentsError(
            f"the variable {name!r} has the filters {filters}; allowed are deflate, shuffle and fletcher32, each once"
        )
    if variable.chunks and (count := math.prod(map(_parts, variable.shape, variable.chunks))) > MOST_CHUNKS:
        raise ContentsError(f"the variable {name!r} has {count:,} chunks; allowed are at most {MOST_CHUNKS:,}")
    if variable.chunks and math.prod(variable.chunks) > max(variable.size, 2**20):
        raise ContentsError(f"the variable {name!r} has chunks larger than itself")


def _check_dimensions(variables: dict[str, Any]) -> None:
    """Check that every axis is one of the file's own dimensions, as NetCDF trusts that it is.

    A dimension is a variable marked as a scale, with a number ``_Netcdf4Dimid``; the axes of other variables refer to
    them in ``DIMENSION_LIST``, and repeat their numbers in ``_Netcdf4Coordinates``.
    """
    scales = {name: v for name, v in variables.items() if v.attrs.get("CLASS") == b"DIMENSION_SCALE"}
    numbers = [_integers(name, variable, "_Netcdf4Dimid", 1)[0] for name, variable in scales.items()]
    if sorted(numbers) != list(range(len(scales))):
        raise ContentsError(f"its dimensions are numbered {sorted(numbers)[:10]}; must be from 0, each once")
    numbered = dict(zip(scales, numbers, strict=True))
    named = {number: name for name, number in numbered.items()}
    for name, variable in variables.items():
        if name not in scales:
            axes = _axes(name, variable)
        elif variable.ndim == 1:
            axes = [name]
        else:  # a coordinate of names, as characters: its further axes are known by their numbers alone
            own = _integers(name, variable, "_Netcdf4Coordinates", variable.ndim)
            axes = [name, *(named.get(number, "") for number in own[1:])]
        for axis, length in zip(axes, variable.shape, strict=True):
            if axis not in scales or len(scales[axis]) != length:
                raise ContentsError(f"an axis of {name!r}, of length {length}, is not one of the file's dimensions")
        if name in scales and "DIMENSION_LIST" in variable.attrs:
            raise ContentsError(f"the dimension {name!r} refers to dimensions itself")
        own = [numbered[axis] for axis in axes]
        if (
            "_Netcdf4Coordinates" in variable.attrs
            and _integers(name, variable, "_Netcdf4Coordinates", len(own)) != own
        ):
            raise ContentsError(f"the _Netcdf4Coordinates of {name!r} are not the numbers of its axes")
        if "_Netcdf4Dimid" in variable.attrs and _integers(name, variable, "_Netcdf4Dimid", 1) != own[:1]:
            raise ContentsError(f"the _Netcdf4Dimid of {name!r} is not the number of its first axis")


def _axes(name: str, variable: h5py.Dataset) -> list[str]:
    """Give the names of the dimensions to which a variable's axes refer."""
    if not variable.ndim:
        return []
    import h5py

    held = variable.attrs.get_id("DIMENSION_LIST") if "DIMENSION_LIST" in variable.attrs else None
    lists = held is not None and held.shape == (variable.ndim,) and h5py.check_vlen_dtype(held.dtype)
    found = variable.attrs["DIMENSION_LIST"] if lists and h5py.check_ref_dtype(lists) is h5py.Reference else []
    if len(found) != variable.ndim or any(len(one) != 1 for one in found):
        raise ContentsError(f"the DIMENSION_LIST of {name!r} does not name one dimension for each axis")
    return [str(variable.file[one[0]].name).removeprefix("/") for one in found]


def _integers(name: str, variable: h5py.Dataset, key: str, count: int) -> list[int]:
    """Read an attribute that holds so many integers."""
    found = variable.attrs.get_id(key) if key in variable.attrs else None
    if found is None or found.dtype.kind not in "iu" or math.prod(found.shape) != count:
        raise ContentsError(f"the {key} of {name!r} is absent or not {count} integer(s)")
    return [int(one) for one in variable.attrs[key].reshape(-1)]


def _check_chunks(name: str, variable: h5py.Dataset, body: bytes) -> None:
    """Refuse a chunk that inflates to more than its part of the array, which HDF5 would go on to allocate."""
    import h5py

    if not variable.chunks:
        return
    deflated = h5py.h5z.FILTER_DEFLATE in _filters(variable)
    most = math.prod(variable.chunks) * variable.dtype.itemsize + 4  # and a checksum, where it was taken before
    for place in itertools.product(*map(range, itertools.repeat(0), variable.shape, variable.chunks)):
        chunk = variable.id.get_chunk_info_by_coord(place)
        if chunk.byte_offset is None:  # never written: the array holds its fill value there
            continue
        if chunk.filter_mask:
            raise ContentsError(f"the variable {name!r} has chunks that were written without its filters")
        if chunk.byte_offset + chunk.size > len(body):
            raise ContentsError(f"the variable {name!r} has a chunk that ends beyond the file's end")
        raw = body[chunk.byte_offset : chunk.byte_offset + chunk.size]
        if deflated and len(zlib.decompressobj().decompress(raw, most + 1)) > most:
            raise ContentsError(f"the variable {name!r} has a chunk that inflates to more than its part of the array")


def _filters(variable: h5py.Dataset) -> list[int]:
    plan = variable.id.get_create_plist()
    return [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]


def _parts(length: int, chunk: int) -> int:
    return -(-length // chunk)
