"""Files are whole or absent, and reading says what is wrong."""

import hashlib
import os
import stat
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from inverse_depth import open_cube, storage
from inverse_depth.storage import StorageError, atomic_path, read_dataset, seal, write_dataset, write_frame, write_text


@pytest.fixture
def dataset():
    rng = np.random.default_rng(0)
    loss = ("L", rng.normal(size=1000), {"long_name": "loss", "units": "1"})
    seconds = ("L", np.full(1000, np.nan), {"units": "s"})
    data = {"loss": loss, "seconds": seconds, "steps": ("L", np.arange(1000)), "power": 2.5}
    return xr.Dataset(data, {"L": np.arange(1000)}, {"title": "test", "config": "{}"})


def test_a_dataset_comes_back_as_it_was(tmp_path, dataset):
    path = tmp_path / "deep" / "er" / "cube.nc"
    write_dataset(dataset, path)
    back = read_dataset(path)
    xr.testing.assert_identical(back.drop_attrs(deep=False), dataset.drop_attrs(deep=False))
    assert back.attrs == {**dataset.attrs, "format": storage.FORMAT}
    assert "format" not in dataset.attrs


def test_a_dataset_opens_in_plain_xarray_and_is_compressed(tmp_path, dataset):
    dataset["constant"] = ("L", np.zeros(1000))
    write_dataset(dataset, tmp_path / "cube.nc")
    for engine in ("netcdf4", "h5netcdf"):
        with xr.open_dataset(tmp_path / "cube.nc", engine=engine) as plain:
            np.testing.assert_array_equal(plain["loss"], dataset["loss"])
            assert plain["constant"].encoding["zlib"]


def test_the_same_content_gives_the_same_bytes(tmp_path, dataset):
    write_dataset(dataset, tmp_path / "first.nc")
    time.sleep(1.1)  # a time stamp of whole seconds would differ
    write_dataset(dataset.copy(deep=True), tmp_path / "second.nc")
    assert (tmp_path / "first.nc").read_bytes() == (tmp_path / "second.nc").read_bytes()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"absent\.nc: no such file"):
        read_dataset(tmp_path / "absent.nc")


def test_a_missing_file_of_a_study_is_made_by_the_command_that_the_message_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for study, layer in (("paper", ""), ("quick", " --configfile config/quick.yaml")):
        path = f"results/{study}/cubes/softmax_difficult.nc"
        with pytest.raises(StorageError) as caught:
            read_dataset(path)
        assert str(caught.value).endswith(f"make it with `snakemake --profile local {path}{layer}`")


@pytest.mark.parametrize("path", [None, 5, 2.5, b"cube.nc", ["cube.nc"]])
def test_what_is_no_path_is_named(path):
    with pytest.raises(StorageError, match=rf"not a path but {type(path).__name__}; allowed is a str or Path"):
        open_cube(path)


def test_what_is_no_file_is_named(tmp_path):
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(StorageError, match=rf"{tmp_path}: a folder; allowed is a NetCDF file"):
            open_cube(path)
    with pytest.raises(StorageError, match=r"''.*allowed is a NetCDF file"):
        open_cube("")
    os.mkfifo(tmp_path / "pipe.nc")
    with pytest.raises(StorageError, match=r"pipe\.nc: no regular file"):
        open_cube(tmp_path / "pipe.nc")
    with pytest.raises(StorageError, match=r"(looked up|no such file)"):
        open_cube("cube\0.nc")
    with pytest.raises(StorageError, match="cannot be looked up"):
        open_cube(tmp_path / ("x" * 300 + ".nc"))


def test_a_variable_named_format_is_no_format(tmp_path):
    path = tmp_path / "other.nc"
    xr.Dataset({"format": ("x", [1.0, 2.0])}).to_netcdf(path)
    seal(path)
    with pytest.raises(StorageError, match=r"other\.nc: not written by this package: its 'format' is 'absent'"):
        open_cube(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_file_cut_short_is_named(tmp_path, dataset, share):
    path = tmp_path / "cube.nc"
    write_dataset(dataset, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StorageError, match=r"cube\.nc: damaged"):
        read_dataset(path)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_a_flipped_bit_in_the_data_is_noticed(tmp_path, share):
    path = tmp_path / "cube.nc"
    write_dataset(xr.Dataset({"loss": ("L", np.random.default_rng(0).normal(size=20_000))}), path)
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1  # random numbers do not compress: nearly all of the file is data
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"cube\.nc: damaged"):
        read_dataset(path)


@pytest.mark.parametrize(
    "attrs",
    [{}, {"format": "inverse-depth 99"}, {"format": 3}, {"format": [1, 2]}, {"format": ["inverse-depth 1", "x"]}],
)
def test_the_file_of_another_program_is_refused(tmp_path, attrs):
    path = tmp_path / "other.nc"
    xr.Dataset({"x": 1.0}, attrs=attrs).to_netcdf(path)
    with pytest.raises(StorageError, match=r"other\.nc: damaged, or not written by this package.*no checksum"):
        read_dataset(path)
    seal(path)
    words = r"(not written by this package.*must be 'inverse-depth 1'|'format' of 'the file' is a list of texts)"
    with pytest.raises(StorageError, match=rf"other\.nc: .*{words}"):
        read_dataset(path)


def test_a_cube_saved_by_xarray_is_refused_and_opens_in_xarray(tmp_path, dataset):
    """It would carry our attributes, but nobody vouches for its numbers."""
    write_dataset(dataset, tmp_path / "cube.nc")
    xr.open_dataset(tmp_path / "cube.nc").isel(L=slice(3)).to_netcdf(tmp_path / "cut.nc")
    with pytest.raises(StorageError, match=r"cut\.nc: .*no checksum.*xarray\.open_dataset reads"):
        read_dataset(tmp_path / "cut.nc")


def test_the_checksum_is_that_of_common_tools(tmp_path, dataset):
    write_dataset(dataset, tmp_path / "cube.nc")
    content = (tmp_path / "cube.nc").read_bytes()
    body, words, digest = content[:-87], *content[-87:].decode().strip().rsplit(maxsplit=1)
    assert (words, digest) == ("inverse-depth sha256", hashlib.sha256(body).hexdigest())


def test_text_that_is_no_netcdf_is_refused(tmp_path):
    path = tmp_path / "note.nc"
    path.write_text("hello")
    with pytest.raises(StorageError, match=r"note\.nc: damaged, or not written by this package"):
        read_dataset(path)


def test_a_failure_leaves_the_older_file_and_no_other(tmp_path):
    path = tmp_path / "notes.txt"
    write_text("old", path)
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text("half of the n")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_write_that_is_killed_leaves_the_older_file(tmp_path):
    path = tmp_path / "notes.txt"
    write_text("old", path)
    code = (
        "import os, sys; from inverse_depth.storage import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary: temporary.write_text('half'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == -9
    assert path.read_text() == "old"


def test_a_file_gets_the_permissions_of_any_other(tmp_path):
    write_text("x", tmp_path / "ours.txt")
    (tmp_path / "plain.txt").write_text("x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours.txt", "plain.txt")}
    assert len(modes) == 1


def test_a_frame_keeps_every_digit(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b"], "value": [0.1 + 0.2, np.nan], "count": [1, 2], "reason": ["", "x, y"]})
    write_frame(frame, tmp_path / "fits.csv")
    back = pd.read_csv(tmp_path / "fits.csv", keep_default_na=False, na_values={"value": [""]})
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    assert "\r" not in (tmp_path / "fits.csv").read_bytes().decode()
