import math

import matplotlib.colors
import numpy as np
import pytest
from synthetic import Law, linear_difficult_laws, make_cube, make_fits, softmax_laws

from inverse_depth.beyond import b_collapse, depth_range, depth_share, like_for_like
from inverse_depth.figures.beyond import depth_range as figure_of_ranges
from inverse_depth.fits import fit_power_law

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LARGE = (128, 1024)


def row(frame, **where):
    chosen = frame[np.logical_and.reduce([frame[name] == value for name, value in where.items()])]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_like_for_like():
    laws = softmax_laws()
    fits = make_fits(laws, DEPTHS, undetermined={(0, 1, 2): "flat loss"})
    softmax = make_cube(laws, DEPTHS, noise=1e-5)
    matched = make_cube({(0, 0, 2): Law(6.07, 0.0, 1.0), (0, 1, 2): Law(1.28, 0.0, 1.0)}, (1, 2, 4))
    large = make_cube({(0, 0, 2): Law(50.0, 4.0, 1.0)}, (1, 4, 16), size=LARGE, noise=1e-5)
    frame = like_for_like(softmax, fits, matched, large, make_cube(linear_difficult_laws(), (1, 2, 4), size=LARGE))
    assert len(frame) == 10
    first = row(frame, d=16, a=0, b=0)
    assert (first["softmax"], first["softmax_is"], first["ratio_published"]) == (2.007, "$L_0$", 29.822)
    assert first["ratio"] == pytest.approx(6.07 / 2.007, rel=1e-3)
    assert first["ratio_se"] == pytest.approx(first["ratio"] * math.hypot(first["linear_se"] / first["linear"], 1e-3))
    unfitted = row(frame, d=16, a=0, b=1)
    assert unfitted["softmax_is"] == "$R_{256}$" and unfitted["softmax_note"] == "not determined: flat loss"
    assert unfitted["softmax"] == pytest.approx(laws[0, 1, 2].loss(256), rel=1e-4)
    assert row(frame, d=16, a=1, b=0)["linear_note"] == "not run"
    deep = row(frame, d=128, a=0, b=0)
    assert deep["softmax_is"] == "$R_{16}$" and deep["softmax"] == pytest.approx(50.25, rel=1e-4)
    assert row(frame, d=128, a=1, b=0)["softmax_note"] == "not run"


def test_unequal_sizes_are_not_compared():
    laws = softmax_laws()
    softmax, small = make_cube(laws, DEPTHS), make_cube(linear_difficult_laws(), (1, 2, 4), size=(32, 256))
    frame = like_for_like(softmax, make_fits(laws, DEPTHS), small, make_cube(laws, (1, 4), size=LARGE), small)
    assert frame["ratio"].isna().all() and set(frame["linear_note"]) == {"has d = 32, P = 256"}


def test_depth_share():
    laws = softmax_laws()
    fits = make_fits(laws, DEPTHS, undetermined={(0, 0.25, 16): "noise"})
    frame = depth_share(make_cube(laws, DEPTHS, noise=1e-5), fits, make_cube(linear_difficult_laws(), (2, 4)))
    assert len(frame) == len(laws) + len(linear_difficult_laws())
    first = row(frame, attention="softmax", k=2, a=0, b=0)
    assert first["share"] == pytest.approx(0.055 / 1.055, abs=1e-4)
    assert first["share_deepest"] == pytest.approx(0.055 * (1 - 256**-0.98) / 1.055, abs=1e-4)
    assert first["share_se"] == pytest.approx(0.001 * 2.007 / first["first"], rel=0.01)
    assert first["share_deepest_se"] < first["share_se"] / 100 and first["deepest"] == 256
    missing = row(frame, attention="softmax", k=16, a=0, b=0.25)
    assert math.isnan(missing["share"]) and missing["note"] == "not determined: noise"
    assert missing["share_deepest"] > 0
    linear = row(frame, attention="linear", k=2, a=0, b=0)
    assert math.isnan(linear["share_deepest"]) and "not run at L = 1" in linear["note"]


def test_b_collapse():
    means = {b: np.mean(np.arange(1, 17.0) ** -b) for b in (0, 0.25, 0.5, 1)}
    cube = make_cube({(0, b, 2): Law(2.0 * mean, 0.1 * mean, 1.0) for b, mean in means.items()}, (1, 4), noise=0.0)
    linear = make_cube({(0, 0, 2): Law(59.0, 0.0, 1.0)}, (1, 2), size=LARGE, noise=0.0)
    frame = b_collapse(cube, linear)
    for b, mean in means.items():
        line = row(frame, attention="softmax", b=b)
        assert line["mean"] == pytest.approx(mean) and line["collapse"] == pytest.approx(mean)
        assert abs(line["collapse_published_difference_percent"]) < 0.1  # the published row is consistent
    last = row(frame, attention="linear", b=0.5)
    assert last["implied"] == pytest.approx(9.766 / np.mean(np.arange(1, 129.0) ** -0.5))
    assert last["note"] == "not run" and math.isnan(last["collapse"])


def test_depth_range_fits_what_it_says():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 0.9)}, DEPTHS, noise=1e-7)
    frame = depth_range(cube)
    assert frame["depths"].tolist() == [
        "1 to 256", "2 to 256", "4 to 256", "8 to 256", "16 to 256", "1 to 32", "2 to 64", "4 to 128"
    ]  # fmt: skip
    mean = cube["loss"].sel(a=0, b=0, k=2, L=[4, 8, 16, 32, 64, 128]).mean("seed")
    law = fit_power_law(mean["L"], mean)
    last = row(frame, depths="4 to 128")
    assert (last["exponent"], last["exponent_se"], last["points"]) == (law.exponent, law.exponent_se, 6)
    assert math.isnan(row(frame, depths="16 to 256")["exponent"])  # five depths
    assert last["exponent"] == pytest.approx(0.9, abs=1e-3) and last["floor"] == pytest.approx(2, abs=1e-5)


def test_depth_range_names_what_is_not_determined():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 0.9)}, (1, 4, 16), noise=1e-7)
    cube["converged"].loc[dict(L=16, seed=0)] = 0
    first = depth_range(cube).iloc[0]
    assert math.isnan(first["exponent"]) and math.isnan(first["floor_se"])
    assert first["note"] == "3 depths cannot determine 3 parameters and their errors; 1 of 6 runs not converged"


def test_figure_of_depth_ranges():
    laws = softmax_laws()
    figure = figure_of_ranges(make_cube(laws, (*DEPTHS, 512), noise=1e-7))
    left, right = figure.axes
    for ax, keys in (
        (left, [(0, 0, 2), (0.25, 0, 2), (0.5, 0, 2), (1, 0, 2)]),
        (right, [(0.25, 0.25, 2), (0.25, 0.5, 2), (0.5, 0.5, 2), (0, 0.25, 16), (0.25, 0.25, 16), (0.25, 0.5, 16)]),
    ):
        lines = [
            line for line in ax.get_lines() if line.get_marker() not in ("None", " ") and np.size(line.get_xdata())
        ]
        assert len(lines) == len(keys)
        for line, key in zip(lines, keys, strict=True):
            np.testing.assert_allclose(line.get_ydata(), laws[key].exponent, atol=0.02)
            assert len(line.get_ydata()) == 5  # from 1, 2, 4, 8 and 16 on
        assert len({matplotlib.colors.to_hex(line.get_color()) for line in lines}) == len(keys)
    assert left.get_legend().get_texts()[0].get_text() == "$a = 0$, all $b$, top 2"


def test_figure_of_depth_ranges_of_a_poor_study():
    figure = figure_of_ranges(make_cube({(0, 0.5, 2): Law(2.0, 0.1, 0.9)}, (1, 4, 16), noise=1e-7))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[0] == "$a = 0$, all $b$, top 2 (3 of 3 not determined)"
    assert labels[1].startswith("not run: $(0.25, 0)$, top 2")
    assert figure.axes[1].texts[-1].get_text() == "no data"
