"""Cubes as a stranger may craft them, with a valid checksum: each is refused in words, or opens."""

import os
import subprocess
import sys
import zlib

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from synthetic import Law, make_cube

from inverse_depth import contents, open_cube, storage
from inverse_depth.storage import StorageError, read_dataset, seal, write_dataset

LAWS = {(0, 0, 2): Law(2.0, 0.1, 1.0)}


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    path = tmp_path_factory.mktemp("cubes") / "cube.nc"
    write_dataset(make_cube(LAWS, [1, 2, 4], modes=4), path)
    open_cube(path)
    return path


def again(file, **how):
    """Put another array in the place of the loss, on the same axes."""
    old = file["loss"]
    attrs = {name: old.attrs[name] for name in ("_Netcdf4Coordinates", "_Netcdf4Dimid", "DIMENSION_LIST")}
    shape, attrs["DIMENSION_LIST"] = old.shape, old.attrs["DIMENSION_LIST"].copy()
    del file["loss"]
    if "layout" in how:
        new = file.create_virtual_dataset("loss", how["layout"])
    else:
        new = file.create_dataset("loss", **({"shape": shape, "dtype": "f8"} | how))
    lists = np.empty(len(shape), dtype=h5py.vlen_dtype(h5py.ref_dtype))
    lists[:] = [np.array(one, dtype=h5py.ref_dtype) for one in attrs.pop("DIMENSION_LIST")]
    new.attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    for name, value in attrs.items():
        new.attrs[name] = value
    return new


def virtual(file):
    layout = h5py.VirtualLayout(file["loss"].shape, "f8")
    layout[...] = h5py.VirtualSource("/etc/passwd", "loss", file["loss"].shape)
    again(file, layout=layout)


def planned(file, change, chunks=(3, 1, 1, 1, 2)):
    """Put an array in the place of the loss whose filters `change` adds by hand."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk(chunks)
    change(plan)
    return again(file, dcpl=plan, shape=file["loss"].shape)


def inflating(file):
    """One chunk of few bytes that inflates to 64 MiB, where the array takes 48 bytes."""
    new = again(file, chunks=(3, 1, 1, 1, 2), compression="gzip")
    new.id.write_direct_chunk((0,) * 5, zlib.compress(bytes(2**26)))


def attribute(where, name, value, **how):
    def change(file):
        owner = file[where]
        if name in owner.attrs:
            del owner.attrs[name]
        if value is not None:
            owner.attrs.create(name, value, **how)

    return change


def enlarged(file):
    """A new dimension and variable of so many characters."""
    new = file.create_dataset("text", (2**20 + 1,), "S1", compression="gzip")
    new.make_scale("text")
    new.attrs["_Netcdf4Dimid"] = np.int32(9)


def scale_of_names(file, numbers):
    """A new dimension whose coordinate holds characters, along the axes of these numbers."""
    new = file.create_dataset("task", (2, 4 if numbers != [0, 8] else len(file["history"])), "S1")
    new.attrs["CLASS"] = np.bytes_("DIMENSION_SCALE")
    new.attrs["_Netcdf4Dimid"] = np.int32(9)
    if numbers:
        new.attrs["_Netcdf4Coordinates"] = np.array(numbers, "i4")


def link(target):
    def change(file):
        del file["seconds"]
        file["seconds"] = target(file)

    return change


def ring(file):
    first = file.create_group("first")
    first["second"] = file.create_group("second")
    file["second/first"] = first


HOSTILE = {
    "external storage": (lambda f: again(f, external=[("/etc/passwd", 0, 48)]), "'loss' is stored in other files"),
    "virtual": (virtual, "'loss' is stored in other files"),
    "external link": (link(lambda f: h5py.ExternalLink("/etc/passwd", "/loss")), r"'seconds' is a link \(ExternalLink"),
    "soft link": (link(lambda f: h5py.SoftLink("/loss")), r"'seconds' is a link \(SoftLink"),
    "two names": (link(lambda f: f["steps"]), "has 2 names"),
    "group": (lambda f: f.create_group("inner"), "'inner' is a group or a type"),
    "root in itself": (link(lambda f: f["/"]), "'seconds' is a group or a type"),
    "groups in a ring": (ring, "'first' is a group or a type"),
    "named type": (lambda f: f.__setitem__("kind", np.dtype("f8")), "'kind' is a group or a type"),
    "many variables": (
        lambda f: [f.create_dataset(f"v{i}", (), "f8") for i in range(1000)],
        "allowed are at most 1,000",
    ),
    "long name": (lambda f: f.create_dataset("x" * 5000, (), "f8"), "a name of 5,000 characters"),
    "huge dimension number": (attribute("L", "_Netcdf4Dimid", np.int32(2**31 - 1)), "its dimensions are numbered"),
    "negative dimension number": (attribute("L", "_Netcdf4Dimid", np.int32(-5)), "its dimensions are numbered"),
    "dimension number twice": (attribute("L", "_Netcdf4Dimid", np.int32(3)), "its dimensions are numbered"),
    "dimension number as text": (attribute("L", "_Netcdf4Dimid", "many"), "_Netcdf4Dimid of 'L' is absent or not"),
    "no dimension number": (attribute("L", "_Netcdf4Dimid", None), "_Netcdf4Dimid of 'L' is absent or not"),
    "variable's dimension number": (attribute("loss", "_Netcdf4Dimid", np.int32(10**9)), "number of its first axis"),
    "dimension numbers of axes": (
        attribute("loss", "_Netcdf4Coordinates", np.array([10**9] * 5, "i4")),
        "_Netcdf4Coordinates of 'loss' are not the numbers",
    ),
    "too many axes": (attribute("loss", "_Netcdf4Coordinates", np.zeros(999, "i4")), "is absent or not 5 integer"),
    "axes without dimensions": (attribute("loss", "DIMENSION_LIST", None), "DIMENSION_LIST of 'loss'"),
    "dimensions as numbers": (attribute("loss", "DIMENSION_LIST", np.arange(5)), "DIMENSION_LIST of 'loss'"),
    "scale of two axes": (attribute("mode_loss", "CLASS", np.bytes_("DIMENSION_SCALE")), "is absent or not"),
    "scale without axes": (lambda f: scale_of_names(f, []), "_Netcdf4Coordinates of 'task' is absent or not 2"),
    "scale of foreign axes": (lambda f: scale_of_names(f, [9, 77]), "an axis of 'task', of length 4, is not one of"),
    "scale of other axes": (lambda f: scale_of_names(f, [0, 1]), "an axis of 'task', of length 4, is not one of"),
    "scale that is no axis": (lambda f: scale_of_names(f, [0, 8]), "the _Netcdf4Coordinates of 'task' are not the"),
    "no scale": (attribute("L", "CLASS", None), "numbered|DIMENSION_LIST of 'L'"),
    "scaled": (attribute("loss", "scale_factor", 2.0), "attribute 'scale_factor'; numbers must be held as they are"),
    "offset": (attribute("steps", "add_offset", 2.0), "attribute 'add_offset'"),
    "missing": (attribute("loss", "missing_value", np.arange(5.0)), "attribute 'missing_value'"),
    "unsigned": (attribute("L", "_Unsigned", "true"), "attribute '_Unsigned'"),
    "fill value of integers": (attribute("L", "_FillValue", np.array([1])), "_FillValue of 'L'"),
    "fill value as text": (attribute("loss", "_FillValue", "none"), "_FillValue of 'loss'"),
    "fill values": (attribute("loss", "_FillValue", np.arange(9.0)), "_FillValue of 'loss'"),
    "attribute too large": (attribute("/", "config", np.zeros(2**24 + 1, "i1")), "attributes of more than 16,777,216"),
    "text too long": (attribute("/", "config", "x" * (2**24 + 1)), "attributes of more than 16,777,216"),
    "attributes that are large together": (
        lambda f: [f.attrs.create(f"a{i}", np.zeros(2**20, "i1")) for i in range(17)],
        "attributes of more than 16,777,216",
    ),
    "many attributes": (
        lambda f: [f["loss"].attrs.create(f"a{i}", 1.0) for i in range(200)],
        "'loss' has 20[0-9] attributes; allowed are at most 100",
    ),
    "list of texts": (attribute("/", "config", ["x"] * 9, dtype=h5py.string_dtype()), "'config' .* is a list of texts"),
    "attribute that refers": (lambda f: f.attrs.create("config", f["L"].ref), "neither text nor numbers"),
    "attribute of records": (
        lambda f: f.attrs.create("config", np.zeros(1, [("x", "f8")])),
        "neither text nor numbers",
    ),
    "texts": (lambda f: again(f, dtype=h5py.string_dtype()), "'loss' holds neither numbers nor characters"),
    "lists": (lambda f: again(f, dtype=h5py.vlen_dtype("f8")), "'loss' holds neither numbers nor characters"),
    "records": (lambda f: again(f, dtype=[("x", "f8")]), "'loss' holds neither numbers nor characters"),
    "references": (lambda f: again(f, dtype=h5py.ref_dtype), "'loss' holds neither numbers nor characters"),
    "names of numbers": (lambda f: again(f, dtype=h5py.enum_dtype({"x": 1})), "holds neither numbers nor characters"),
    "opaque": (lambda f: again(f, dtype="V8"), "'loss' holds neither numbers nor characters"),
    "long texts": (lambda f: again(f, dtype="S1000"), "'loss' holds neither numbers nor characters"),
    "wide floats": (lambda f: again(f, dtype="f16"), "'loss' holds neither numbers nor characters"),
    "complex numbers": (lambda f: again(f, dtype="c16"), "'loss' holds neither numbers nor characters"),
    "loss of characters": (lambda f: again(f, dtype="S1"), "(its loss holds|not a cube)"),
    "loss of integers": (lambda f: again(f, dtype="i8"), "its loss holds int64; allowed are floats"),
    "foreign letters": (
        lambda f: f.create_dataset("t", (), "S1").attrs.create("_Encoding", "idna"),
        "'_Encoding' of 't'",
    ),
    "no loss": (lambda f: f.__delitem__("loss"), "allowed is a variable 'loss' over L, a, b, k, seed"),
    "variable named as the messages name the file": (
        lambda f: [f.create_dataset("the file", (), "f8"), f.attrs.create("config", np.zeros(1, [("x", "f8")]))],
        "'config' of 'the file' is neither text nor numbers",
    ),
    "references of the file itself": (
        lambda f: f.attrs.create("DIMENSION_LIST", np.zeros(1, [("x", "f8")])),
        "neither text nor numbers",
    ),
    "dimension with dimensions": (attribute("L", "DIMENSION_LIST", 1.0), "'L' refers to dimensions itself"),
    "marks of any length": (
        attribute("L", "CLASS", "DIMENSION_SCALE", dtype=h5py.string_dtype()),
        "'CLASS' of 'L' is not text of a fixed length",
    ),
    "many characters": (enlarged, "arrays of characters hold 1,048,577"),
    "foreign filter": (lambda f: again(f, chunks=True, compression="lzf"), r"has the filters \[32000\]"),
    "bits cut": (lambda f: again(f, dtype="i8", chunks=True, scaleoffset=0), r"has the filters \[6\]"),
    "deflate twice": (
        lambda f: planned(f, lambda plan: [plan.set_deflate(9), plan.set_deflate(9)]),
        r"has the filters \[1, 1\]",
    ),
    "filter of a plugin": (
        lambda f: planned(f, lambda plan: plan.set_filter(307, h5py.h5z.FLAG_OPTIONAL, (9,))),
        r"has the filters \[307\]",
    ),
    "absurd chunks": (
        lambda f: again(f, chunks=(2**10, 2**8, 1, 1, 2**8), maxshape=(None,) * 5),
        "has chunks larger than itself",
    ),
    "inflating chunk": (inflating, "has a chunk that inflates to more than its part"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_crafted_cube_is_refused_in_words(cube, tmp_path, kind):
    change, words = HOSTILE[kind]
    path = tmp_path / "crafted.nc"
    path.write_bytes(cube.read_bytes()[:-87])
    with h5py.File(path, "r+") as file:
        change(file)
    seal(path)
    with pytest.raises(StorageError, match=rf"crafted\.nc: .*({words})"):
        open_cube(path)


@pytest.mark.parametrize(("place", "size"), [(0, 0), (0, 15), (0, 2**63), (1, 2**64 - 16), (1, 2**64 - 1)])
def test_a_heap_in_which_hdf5_goes_round_for_ever_is_refused(cube, tmp_path, place, size):
    """An object of the heap (its free space is number 0) that takes no room; in a process, for it cannot be stopped."""
    content, path = bytearray(cube.read_bytes()[:-87]), tmp_path / "ring.nc"
    first = content.index(b"GCOL\x01") + 16
    content[first : first + 2] = place.to_bytes(2, "little")
    content[first + 8 : first + 16] = size.to_bytes(8, "little")
    path.write_bytes(content)
    seal(path)
    code = "import sys; from inverse_depth import open_cube; open_cube(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
    assert f"StorageError: {path}: its heap at byte" in done.stderr


@pytest.mark.parametrize(
    ("place", "value"), [(6, 0), (6, 0xFF000200), (10, 0), (10, 2**16 - 1), (12, 2**16 - 1), (5, 0)]
)
def test_an_index_of_absurd_sizes_is_refused_before_hdf5_meets_it(cube, place, value):
    content = bytearray(cube.read_bytes()[:-87])
    start = content.index(b"BTHD\0")
    width = {5: 1, 6: 4}.get(place, 2)
    content[start + place : start + place + width] = value.to_bytes(width, "little")
    with pytest.raises(contents.ContentsError, match=f"its index at byte {start:,} has nodes of"):
        contents.check_contents(bytes(content))


@pytest.mark.parametrize(("place", "value"), [(7, 1), (110, 0), (112, 0), (122, 0), (128, 2**15), (130, 0)])
def test_a_heap_of_absurd_sizes_is_refused_before_hdf5_meets_it(cube, place, value):
    content = bytearray(cube.read_bytes()[:-87])
    start = content.index(b"FRHP\0")
    content[start + place : start + place + 2] = value.to_bytes(2, "little")
    with pytest.raises(contents.ContentsError, match=f"its heap of names at byte {start:,} has"):
        contents.check_contents(bytes(content))


@pytest.mark.parametrize(("place", "value"), [(0, 0), (0, 2), (0, 2**31), (4, 0), (4, 8), (12, 0), (12, 2**31)])
def test_axes_of_a_false_length_are_refused_before_hdf5_meets_them(cube, place, value):
    """Of the list of axes' first element: its length, the address of a heap, the number of an object."""
    content, name = bytearray(cube.read_bytes()[:-87]), b"DIMENSION_LIST\0"
    start = content.index(name) + len(name)
    kind, space = (int.from_bytes(content[start - len(name) + at :][:2], "little") for at in (-5, -3))
    first = start + kind + space
    assert content[first : first + 4] == b"\1\0\0\0"
    content[first + place : first + place + 4] = value.to_bytes(4, "little")
    with pytest.raises(contents.ContentsError, match="'DIMENSION_LIST' is not of the length that it states"):
        contents.check_contents(bytes(content))


@pytest.mark.parametrize("library", ["earliest", "latest"])
@pytest.mark.parametrize("length", [0, 1, 99, 2**31])
def test_a_text_of_a_false_length_is_refused(tmp_path, library, length):
    path = tmp_path / "text.nc"
    with h5py.File(path, "w", libver=library) as file:
        file.attrs["note"] = "\u2603" * 30
    content = bytearray(path.read_bytes())
    contents.check_contents(bytes(content))
    heap = content.index(b"GCOL\1").to_bytes(8, "little")
    stated = content.index((90).to_bytes(4, "little") + heap)
    content[stated : stated + 4] = length.to_bytes(4, "little")
    with pytest.raises(contents.ContentsError, match="'note' is not of the length that it states"):
        contents._check_lengths(bytes(content), b"note", 1)
    with pytest.raises((contents.ContentsError, RuntimeError)):  # in newer files HDF5's own checksum may speak first
        contents.check_contents(bytes(content))


@pytest.mark.parametrize(("place", "byte"), [(9, 4), (10, 2), (12, 1), (8, 1)])
def test_addresses_of_another_kind_are_refused(cube, tmp_path, place, byte):
    content, path = bytearray(cube.read_bytes()[:-87]), tmp_path / "short.nc"
    content[place] = byte
    path.write_bytes(content)
    seal(path)
    with pytest.raises(StorageError, match=r"short\.nc: damaged, or not a NetCDF-4 file"):
        open_cube(path)


def test_the_header_of_older_libraries_opens(tmp_path):
    """Version 0 of HDF5's superblock."""
    with h5py.File(tmp_path / "old.nc", "w", libver=("earliest", "v108")) as file:
        file.attrs["format"] = np.bytes_("inverse-depth 1")
    assert (tmp_path / "old.nc").read_bytes()[8] == 0
    seal(tmp_path / "old.nc")
    assert read_dataset(tmp_path / "old.nc").attrs["format"] == "inverse-depth 1"


def test_an_array_of_many_chunks_is_refused(tmp_path):
    path = tmp_path / "chunks.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("L", 10**5)
        file.createVariable("L", "f8", ("L",), chunksizes=(1,))[:] = np.arange(10**5)
    seal(path)
    with pytest.raises(StorageError, match=r"chunks\.nc: .*'L' has 100,000 chunks; allowed are at most 65,536"):
        read_dataset(path)


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_an_older_format_is_refused(tmp_path, kind):
    path = tmp_path / "old.nc"
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.format = "inverse-depth 1"
    seal(path)
    with pytest.raises(StorageError, match=r"old\.nc: damaged, or not a NetCDF-4 file.*begins with b'CDF"):
        read_dataset(path)


def test_nothing_need_stand_before_the_file(cube, tmp_path):
    path = tmp_path / "prefixed.nc"
    path.write_bytes(b"#!/bin/sh\n".ljust(512) + cube.read_bytes()[:-87])
    seal(path)
    with pytest.raises(StorageError, match=r"prefixed\.nc: damaged, or not a NetCDF-4 file"):
        open_cube(path)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.nc"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole, which takes no room
    with pytest.raises(StorageError, match=r"large\.nc: 1,099,511,627,776 bytes; allowed are at most 1,073,741,824"):
        open_cube(path)


def test_a_name_that_is_no_text_opens(cube, tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(b"\xff\xfe.nc"))
    with open(path, "wb") as file:
        file.write(cube.read_bytes())
    xr.testing.assert_identical(open_cube(path), open_cube(cube))


def test_a_name_that_looks_like_an_address_is_only_a_name(cube, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "http:#mode=zarr,s3"
    with open(name, "wb") as file:
        file.write(cube.read_bytes())
    xr.testing.assert_identical(open_cube(name), open_cube(cube))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read: Permission denied"),
        (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
        (MemoryError(), "takes more memory than there is"),
    ],
)
def test_what_the_system_refuses_ends_in_words(cube, monkeypatch, error, words):
    def fails(*arguments):
        raise error

    monkeypatch.setattr(storage.Path, "open", fails)
    with pytest.raises(StorageError, match=rf"cube\.nc: .*{words}"):
        open_cube(cube)


def test_memory_that_runs_out_inside_the_library_ends_in_words(cube, monkeypatch):
    def fails(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(netCDF4, "Dataset", fails)
    with pytest.raises(StorageError, match=r"cube\.nc: reading it takes more memory than there is"):
        open_cube(cube)


def test_what_the_package_itself_may_write_passes(tmp_path):
    """Scalars, flags, names, empty axes and axes without coordinates, and text beyond ASCII or 64 kB."""
    dataset = xr.Dataset(
        {
            "flag": ("x", [True, False]),
            "single": ("x", np.float32([1, np.nan])),
            "count": ("x", np.int32([1, 2])),
            "scalar": 2.5,
            "none": (("x", "empty"), np.zeros((2, 0))),
            "plain": ("without", np.arange(3.0)),
        },
        {"x": [1, 2], "name": ("x", ["one", "three"]), "task": ["easy", "difficult"]},
        {"long": "x" * 100_000, "snow": "\u2603", "numbers": [1.5, 2.5]},
    )
    write_dataset(dataset, tmp_path / "ours.nc")
    back = read_dataset(tmp_path / "ours.nc")
    xr.testing.assert_equal(back, dataset)
    assert back.attrs["long"] == "x" * 100_000


def test_the_limits_leave_room_for_the_paper():
    assert contents.MOST_BYTES > 100 * 20 * 7 * 5 * 3 * 2 * 256 * 8  # a cube's largest array, a hundred times
    assert sys.getsizeof("x" * 100_000) < contents.MOST_ATTRIBUTE_BYTES
