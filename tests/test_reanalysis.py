"""A cube is reopened and refitted without torch, and by programs that know nothing of this package."""

import shutil
import subprocess
import sys
from pathlib import Path

import h5netcdf
import numpy as np
import pytest
import xarray as xr
from synthetic import Law, make_cube

from inverse_depth import fit_power_law
from inverse_depth.storage import write_dataset

ROOT = Path(__file__).parents[1]
LAWS = {(0, 0, 2): Law(2.0, 0.2, 0.8), (1, 0, 2): Law(0.5, 0.1, 1.1)}


@pytest.fixture(scope="module")
def cube():
    return make_cube(LAWS, [1, 2, 4, 8, 16, 32, 64, 128, 256], noise=1e-6)


@pytest.fixture(scope="module")
def path(cube, tmp_path_factory):
    path = tmp_path_factory.mktemp("cubes") / "softmax_difficult.nc"
    write_dataset(cube, path)
    return path


def test_the_example_refits_without_torch(path, tmp_path):
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__');"
        "loaded = {'torch', 'snakemake'} & set(sys.modules); assert not loaded, loaded"
    )
    arguments = [ROOT / "examples/reanalyse.py", path, "--from", "4", "--to", "128", "--plot", tmp_path / "refit.png"]
    environment = {"PYTHONPATH": ":".join(sys.path), "MPLBACKEND": "Agg", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(a, b) = (0, 0): exponent 0.80" in done.stdout
    assert "(a, b) = (1, 0): exponent 1.1" in done.stdout
    assert (tmp_path / "refit.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_says_when_depths_are_too_few(path, tmp_path):
    command = [sys.executable, ROOT / "examples/reanalyse.py", path, "--from", "128", "--plot", tmp_path / "refit.png"]
    environment = {"PYTHONPATH": ":".join(sys.path), "MPLBACKEND": "Agg"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(a, b) = (0, 0): 2 depths in this range are too few" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "64", "--to", "8"], "--from 64 --to 8 holds no depth: the cube has 1, 2"),
        (["--target-size", "3"], "--target-size is 3: the cube holds 2"),
        (["--floor", "9"], "floor is 9"),
        (["--plot", "absent/refit.png"], "--plot absent/refit.png: "),
        (["--plot", "refit.xyz"], "--plot refit.xyz: "),
    ],
)
def test_the_example_names_a_wrong_argument(path, tmp_path, arguments, words):
    environment = {"PYTHONPATH": ":".join(sys.path), "MPLBACKEND": "Agg"}
    command = [sys.executable, ROOT / "examples/reanalyse.py", path, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_plain_xarray_opens_a_cube(cube, path, engine):
    with xr.open_dataset(path, engine=engine) as opened:
        xr.testing.assert_allclose(opened["loss"], cube["loss"])
        curve = opened["loss"].sel(a=0, b=0, k=2).mean("seed").dropna("L")
        assert fit_power_law(curve["L"].values, curve.values).exponent == pytest.approx(0.8, abs=0.01)


def test_h5netcdf_opens_a_cube(cube, path):
    with h5netcdf.File(path) as opened:
        assert opened["loss"].dimensions == ("L", "a", "b", "k", "seed")
        np.testing.assert_array_equal(opened["L"][:], cube["L"])
        np.testing.assert_array_equal(opened["loss"][:], cube["loss"])


def test_pandas_takes_a_cube(cube, path):
    with xr.open_dataset(path) as opened:
        frame = opened[["loss", "converged"]].to_dataframe().dropna().reset_index()
    assert list(frame.columns[:5]) == ["L", "a", "b", "k", "seed"]
    assert len(frame) == 9 * 2 * 2
    means = frame.groupby(["a", "L"])["loss"].mean()
    assert means[0.0, 4] == pytest.approx(float(cube["loss"].sel(a=0, b=0, k=2, L=4).mean()))


def test_ncdump_reads_a_cube(path):
    if shutil.which("ncdump") is None:
        pytest.skip("ncdump is not installed")
    done = subprocess.run(["ncdump", "-h", path], capture_output=True, text=True)
    assert done.returncode == 0 and "double loss(L, a, b, k, seed)" in done.stdout
