"""Damage of every kind of byte is noticed, and opening what others made is safe."""

import json
import subprocess
import sys

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import linear_difficult_laws, make_cube

from inverse_depth import cubes, open_cube
from inverse_depth.storage import StorageError, read_dataset, seal, write_dataset

BODY = slice(None, -87)  # all but the checksum


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    path = tmp_path_factory.mktemp("cubes") / "cube.nc"
    write_dataset(make_cube(linear_difficult_laws(), [1, 2, 4], modes=4), path)
    open_cube(path)
    return path


def flipped(content, position, bit=0):
    return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]


def test_every_flipped_bit_is_noticed(cube, tmp_path):
    """Of header, names, attributes, data and the checksum itself, at positions through the whole file."""
    content, path = cube.read_bytes(), tmp_path / "cube.nc"
    positions = [*np.linspace(0, len(content) - 1, 1500).astype(int), *range(len(content) - 87, len(content))]
    for count, position in enumerate(positions):
        path.write_bytes(flipped(content, int(position), count % 8))
        with pytest.raises(StorageError, match=r"cube\.nc: damaged"):
            open_cube(path)


def test_every_truncation_is_noticed(cube, tmp_path):
    content, path = cube.read_bytes(), tmp_path / "cube.nc"
    for length in [*np.linspace(0, len(content) - 1, 300).astype(int), *range(len(content) - 90, len(content))]:
        path.write_bytes(content[: int(length)])
        with pytest.raises(StorageError, match=r"cube\.nc: damaged"):
            open_cube(path)


def test_a_zeroed_block_is_noticed(cube, tmp_path):
    content, path = cube.read_bytes(), tmp_path / "cube.nc"
    for start in (0, len(content) // 2, len(content) - 512):  # as after a power failure
        path.write_bytes(content[:start] + bytes(512) + content[start + 512 :])
        with pytest.raises(StorageError, match=r"cube\.nc: damaged"):
            open_cube(path)


def absurd(path, **sizes):
    """A small, sealed file of our format whose header declares dimensions of any size."""
    with netCDF4.Dataset(path, "w") as file:
        file.format = "inverse-depth 1"
        for name in cubes.DIMENSIONS:
            file.createDimension(name, sizes.get(name, 1))
            file.createVariable(name, "f8", (name,), zlib=True, chunksizes=(1,))
        file.createVariable("loss", "f8", cubes.DIMENSIONS, zlib=True, chunksizes=(1,) * 5)
    seal(path)


def test_a_small_file_that_declares_absurd_sizes_is_refused_before_anything_is_allocated(tmp_path):
    path = tmp_path / "bomb.nc"
    for sizes in ({"L": 10**12}, {"seed": 10**9, "L": 1000}):
        absurd(path, **sizes)
        assert path.stat().st_size < 50_000
        with pytest.raises(StorageError, match=r"bomb\.nc: its arrays would take [\d,]+ bytes; allowed are at most 4,"):
            open_cube(path)
    absurd(path, L=10**7)  # 160 MB: allowed for a cube, impossible for a file of this size
    with pytest.raises(StorageError, match=r"bomb\.nc: .*holds at most 1032 times as many"):
        open_cube(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cube: cube.rename(seed="run"), "allowed is a variable 'loss' over L, a, b, k, seed"),
        (lambda cube: cube.isel(seed=0), "not a cube"),
        (lambda cube: cube.drop_vars("loss"), "not a cube"),
        (lambda cube: cube.drop_vars("L"), "not a cube"),
        (lambda cube: cube.transpose("seed", ...), "not a cube"),
        (
            lambda cube: cube.assign(note=("L", ["one"] * cube.sizes["L"])),
            "'note' holds neither numbers nor characters",
        ),
        (lambda cube: cube.assign_coords(L=[2, 2, 4]), "the coordinate L is no increasing list of finite numbers"),
        (lambda cube: cube.assign_coords(L=[1, 2, np.nan]), "the coordinate L is no increasing list"),
        (lambda cube: cube.assign_coords(L=np.array([4, 2, 1], "uint8")), "the coordinate L is no increasing list"),
    ],
)
def test_what_is_no_cube_is_refused_in_words(cube, tmp_path, change, words):
    path = tmp_path / "other.nc"
    write_dataset(change(read_dataset(cube)), path)
    with pytest.raises(StorageError, match=r"other\.nc") as caught:
        open_cube(path)
    assert words in str(caught.value)


def test_another_version_is_refused(cube, tmp_path):
    path = tmp_path / "later.nc"
    read_dataset(cube).assign_attrs(format="inverse-depth 2").to_netcdf(path)
    seal(path)
    with pytest.raises(StorageError, match=r"'format' is 'inverse-depth 2', must be 'inverse-depth 1'"):
        open_cube(path)


OPEN_ALL = """
import sys, warnings
from pathlib import Path
from inverse_depth import open_cube
from inverse_depth.storage import StorageError
warnings.simplefilter("ignore")
for path in sorted(Path(sys.argv[1]).glob("*.nc")):
    print(path.name, flush=True)
    try:
        open_cube(path)
    except StorageError as error:
        assert str(path) in str(error)
"""


def open_in_a_process(folder):
    """Open every file of a folder; a crash, a hang or any exception but StorageError is the failure of the caller."""
    return subprocess.run([sys.executable, "-c", OPEN_ALL, folder], capture_output=True, text=True, timeout=300)


def test_mutated_cubes_with_a_valid_checksum_neither_crash_nor_raise_anything_else(cube, tmp_path):
    """As someone hostile would send them: every mutation is sealed again, so that HDF5 itself meets it."""
    body, rng = cube.read_bytes()[BODY], np.random.default_rng(0)
    for number in range(300):
        content = body
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(content)))
            length = int(rng.integers(1, 9))
            kind = rng.integers(4)
            if kind == 0:
                content = flipped(content, at, int(rng.integers(8)))
            elif kind == 1:
                content = content[:at] + rng.bytes(length) + content[at + length :]
            elif kind == 2:
                content = content[:at] + b"\xff" * length + content[at + length :]
            else:
                content = content[: max(1, at)]
        (tmp_path / f"{number:03}.nc").write_bytes(content)
        seal(tmp_path / f"{number:03}.nc")
    done = open_in_a_process(tmp_path)
    assert done.returncode == 0, (done.returncode, done.stdout[-20:], done.stderr[-2000:])
    assert len(done.stdout.split()) == 300


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_in_words(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.nc"
    for sealed in (False, True):
        path.write_bytes(content)
        if sealed:
            seal(path)
        with pytest.raises(StorageError, match=r"bytes\.nc: damaged"):
            open_cube(path)


def test_no_module_unpickles():
    """Checkpoints are loaded with weights only; nothing else reads a format that can hold code."""
    package = cubes.__file__.rpartition("/")[0]
    found = subprocess.run(
        [
            "grep",
            "-rnE",
            r"pickle\.loads?\(|torch\.load\(|allow_pickle|eval\(|exec\(|yaml\.load\(",
            package,
            "--include=*.py",
        ],
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [line for line in found if "weights_only=True" not in line and "_Loader)" not in line] == []
    assert len(found) == 2


def test_attributes_of_any_kind_are_read_or_refused(cube, tmp_path):
    dataset = xr.load_dataset(cube, engine="netcdf4")
    for value in ("", "[" * 5000, json.dumps({"a": 1}), 3, [1.5, 2.5], "\u2603"):
        dataset.assign_attrs(config=value, units=value).to_netcdf(tmp_path / "attrs.nc")
        seal(tmp_path / "attrs.nc")
        assert np.array_equal(open_cube(tmp_path / "attrs.nc").attrs["config"], value)
