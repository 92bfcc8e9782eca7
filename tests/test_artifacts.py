import importlib
import subprocess
import sys
from inspect import signature

import pytest
from synthetic import linear_difficult_laws, make_cube, make_fits, make_floors, softmax_laws

from inverse_depth.artifacts import ARTIFACTS, render
from inverse_depth.storage import write_dataset, write_frame

DEPTHS = (1, 4, 16, 64)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    laws = softmax_laws()
    write_dataset(make_cube(laws, DEPTHS, modes=4), folder / "softmax.nc")
    write_frame(make_fits(laws, DEPTHS), folder / "fits.csv")
    write_dataset(make_cube(linear_difficult_laws(), DEPTHS, modes=4, size=(128, 1024)), folder / "linear.nc")
    write_dataset(make_floors({(0, 0, 2): 6.07}), folder / "matched.nc")
    return folder


@pytest.mark.parametrize("name", ARTIFACTS)
def test_function_takes_exactly_the_declared_inputs(name):
    artifact = ARTIFACTS[name]
    module, function = artifact.function.split(":")
    assert set(signature(getattr(importlib.import_module(module), function)).parameters) == set(artifact.inputs)


@pytest.mark.parametrize("name", ARTIFACTS)
def test_captions_stand_alone(name):
    caption = ARTIFACTS[name].caption
    assert len(caption) > 100 and caption.endswith(".")
    assert "attention" in caption and ("depth" in caption or "floor" in caption)


def test_importing_the_registry_loads_nothing_heavy():
    code = (
        "import sys, inverse_depth.artifacts;"
        "heavy = {'numpy', 'pandas', 'xarray', 'matplotlib', 'seaborn', 'torch', 'pydantic'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.returncode == 0, done.stderr


def test_figures_and_tables_need_no_torch():
    code = (
        "import sys, inverse_depth.comparison, inverse_depth.beyond, inverse_depth.markup;"
        "import inverse_depth.figures.easy, inverse_depth.figures.difficult, inverse_depth.figures.training;"
        "import inverse_depth.figures.beyond;"
        "import inverse_depth.figures.overview, inverse_depth.figures.drawn, inverse_depth.mode_tables;"
        "import inverse_depth.figures.variants;"
        "sys.exit('torch' in sys.modules or 'snakemake' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0


def test_render_writes_the_same_figure_twice(files, tmp_path):
    written = []
    for copy in ("one", "two"):
        outputs = [tmp_path / copy / f"fig5.{suffix}" for suffix in ("pdf", "png")]
        render("fig5", {"cube": files / "linear.nc"}, outputs)
        written.append([path.read_bytes() for path in outputs])
    assert written[0] == written[1]
    pdf, png = written[0]
    assert pdf.startswith(b"%PDF") and b"CreationDate" not in pdf
    assert png.startswith(b"\x89PNG")


def test_render_writes_a_table_in_three_formats(files, tmp_path):
    names = {"softmax": "softmax.nc", "fits": "fits.csv", "linear": "linear.nc", "matched": "matched.nc"}
    outputs = [tmp_path / f"table1.{suffix}" for suffix in ("tex", "csv", "md")]
    render("table1", {key: files / name for key, name in names.items()}, outputs)
    tex, csv, md = (path.read_text(encoding="utf-8") for path in outputs)
    assert csv.startswith("a,b,softmax,softmax_se,")
    caption = f"{ARTIFACTS['table1'].title}. {ARTIFACTS['table1'].caption}"
    assert md.startswith(f"{caption}\n\n|") and "2.007 ± 0.002" in md
    assert tex.startswith(f"% {caption}\n") and r"\toprule" in tex and r"2.007 $\pm$ 0.002" in tex


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "message"),
    [
        ("fig99", {}, [], "name is 'fig99'"),
        ("fig5", {"cubes": "x.nc"}, ["x.pdf", "x.png"], "inputs of fig5 are cubes: must be cube"),
        ("fig5", {"cube": "x.nc"}, ["x.pdf"], "outputs of fig5 end in pdf: must be pdf, png"),
        ("table2", {"cube": "x.nc", "fits": "x.csv"}, ["x.pdf", "x.png"], "must be csv, md, tex"),
    ],
)
def test_render_refuses_what_does_not_fit(name, inputs, outputs, message):
    with pytest.raises(ValueError, match=message):
        render(name, inputs, outputs)
