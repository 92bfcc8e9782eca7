import math

import numpy as np
import pandas as pd
import pytest
from synthetic import (
    Law,
    linear_difficult_laws,
    linear_easy_laws,
    make_cube,
    make_fits,
    make_floors,
    softmax_laws,
)

from inverse_depth.config import Fit
from inverse_depth.curves import Curve, plateau
from inverse_depth.fits import fit_cube
from inverse_depth.markup import write_table
from inverse_depth.mode_tables import depth_below, modes
from inverse_depth.tables import published, table_1, table_2, table_3, table_4, table_5

DEPTHS = (1, 2, 4, 8, 16, 32, 64)


def row(frame, a, b, k=None):
    chosen = frame[(frame["a"] == a) & (frame["b"] == b)]
    return (chosen if k is None else chosen[chosen["k"] == k]).iloc[0]


@pytest.fixture(scope="module")
def softmax():
    laws = softmax_laws()
    return make_cube(laws, DEPTHS), make_fits(laws, DEPTHS)


@pytest.fixture(scope="module")
def linear():
    return make_cube(linear_difficult_laws(), DEPTHS, noise=1e-5, size=(128, 1024))


def test_published_numbers():
    counts = {"Table 1": 14, "Table 2": 21, "Table 3": 27, "Table 4": 21, "Table 5": 14, "Fig. 12": 2}
    counts |= {"Sec. 3.2": 7, "Sec. 4.1": 7, "Fig. 6": 14, "Fig. 9": 2, "Fig. 10": 2, "Fig. 11": 3, "Fig. 14": 3}
    assert set(published()["place"]) == set(counts)
    for place, count in counts.items():
        frame = published(place)
        assert len(frame) == count and frame["value"].notna().all()
        assert not frame.duplicated(["quantity", "attention", "k", "a", "b"]).any()
    with pytest.raises(ValueError, match="place is 'Table 9'"):
        published("Table 9")


def test_published_references_agree_with_their_formula():
    frame = published("Table 2").pivot(index=["a", "b"], columns="quantity", values="value").reset_index()
    zeta = (frame["a"] + frame["b"] - 1) / frame["a"]
    np.testing.assert_allclose(frame["zeta"], zeta, atol=5.1e-4)
    np.testing.assert_allclose(frame["two_zeta"], 2 * zeta, atol=5.1e-4)


def test_published_differences_agree_with_their_columns():
    frame = published("Table 3").pivot(index=["k", "a", "b"], columns="quantity", values="value")
    relative = 100 * (frame["plateau"] - frame["theory_floor"]).abs() / frame["plateau"]
    np.testing.assert_allclose(frame["difference_percent"], relative, atol=0.025)


def test_table_1(softmax, linear):
    cube, fits = softmax
    first = row(table_1(cube, fits, linear, make_floors({(0, 0, 2): 6.07})), 0, 0)
    assert first["softmax"] == 2.007 and first["softmax_published"] == 2.007
    assert first["linear"] == pytest.approx(plateau(linear, (0, 0), 2).value)
    assert first["linear_published"] == 59.853
    assert first["linear_difference_percent"] == pytest.approx(100 * (first["linear"] / 59.853 - 1))
    assert first["ratio"] == pytest.approx(first["linear"] / 2.007)
    assert first["matched_ratio"] == pytest.approx(6.07 / 2.007)
    assert first["matched_ratio_se"] == pytest.approx(6.07 / 2.007 * math.hypot(0.002 / 6.07, 0.001))
    assert first["softmax_note"] == first["linear_note"] == first["matched_note"] == ""


def test_table_1_says_what_is_missing(softmax, linear):
    cube, _ = softmax
    fits = make_fits(softmax_laws(), DEPTHS, undetermined={(0, 0, 2): "flat loss"})
    some = linear.copy(deep=True)
    some["loss"].loc[dict(a=0, b=0)] = np.nan
    first = row(table_1(cube, fits, some, make_floors({(1, 0, 2): 1.0})), 0, 0)
    for name in ("softmax", "softmax_se", "linear", "ratio", "matched", "softmax_difference_percent"):
        assert math.isnan(first[name])
    assert first["softmax_note"] == "not determined: flat loss"
    assert (first["linear_note"], first["matched_note"]) == ("not run", "not computed")


def test_unconverged_runs_are_counted(softmax, linear):
    cube, fits = softmax
    cube = cube.copy(deep=True)
    cube["converged"].loc[dict(L=[1, 2], a=0.25, b=0.25, k=2, seed=0)] = 0
    assert row(table_4(cube, fits), 0.25, 0.25, 2)["note"] == "2 of 14 runs not converged"
    assert row(table_4(cube, fits), 0.25, 0.5, 2)["note"] == ""


def test_plateau_of_a_loss_that_still_falls():
    cube = make_cube({(0, 0, 2): Law(1.0, 1.0, 1.0)}, [1, 2, 4], seeds=(0,), noise=0.0)
    level = plateau(cube, (0, 0), 2)
    assert level.value == pytest.approx((1.5 + 1.25) / 2)
    assert level.error == pytest.approx(0.125)
    assert level.note == "still falls by 18.2 % over the deepest depths"
    assert plateau(cube.sel(L=[4]), (0, 0), 2).note == "one depth only"
    assert plateau(cube, (0, 1), 2).note == "not run"


def test_table_2():
    laws = linear_easy_laws()
    frame = table_2(make_cube(laws, DEPTHS), make_fits(laws, DEPTHS, undetermined={(2, 1, 1): "noise"}))
    first = row(frame, 2, 0.5)
    assert (first["zeta"], first["two_zeta"], first["exponent_published"]) == (0.75, 1.5, 1.121)
    assert first["exponent"] == pytest.approx(0.975)
    assert first["exponent_difference"] == pytest.approx(0.975 - 1.121)
    assert first["between"] == "yes"
    second = row(frame, 2, 1)
    assert math.isnan(second["exponent"]) and second["between"] == "not determined"
    assert second["note"] == "not determined: noise"


@pytest.mark.parametrize(("exponent", "verdict"), [(0.5, "no"), (1.6, "no"), (0.77, "in part"), (1.0, "yes")])
def test_table_2_judges_the_interval(exponent, verdict):
    laws = {(2, 0.5, 1): Law(0.0, 1.0, exponent)}
    assert row(table_2(make_cube(laws, DEPTHS), make_fits(laws, DEPTHS)), 2, 0.5)["between"] == verdict


def test_table_3(linear):
    frame = table_3(linear, make_floors({(0, 0, 2): 59.37, (1, 0, 16): 0.448}))
    assert len(frame) == 9
    first = row(frame, 0, 0, 2)
    assert first["difference_percent"] == pytest.approx(100 * (first["plateau"] - 59.37) / first["plateau"])
    assert (first["theory_published"], first["theory_published_se"]) == (59.3714, 0.0213)
    last = row(frame, 1.25, 0, 16)
    assert math.isnan(last["theory"]) and math.isnan(last["difference_percent"])
    assert (last["theory_note"], last["plateau_note"]) == ("not computed", "")


def test_table_4(softmax):
    frame = table_4(*softmax)
    first = row(frame, 0, 0.25, 16)
    assert first["floor"] == 0.173 and first["floor_published"] == 0.173237
    assert first["exponent_published_se"] == 0.02 and first["r_squared"] == 0.9991
    assert list(frame["k"]) == [2, 2, 2, 16, 16, 16, 16]


def test_a_misfit_is_noted_beside_the_value(softmax):
    cube, fits = softmax
    fits = fits.assign(misfit="the law misses the losses")
    assert row(table_4(cube, fits), 0.25, 0.25, 2)["note"] == "the law misses the losses"
    assert row(table_4(cube, fits), 0.25, 0.25, 2)["exponent"] > 0
    fits = fits.assign(determined=False, reason="bent", misfit=math.nan)
    assert row(table_4(cube, fits), 0.25, 0.25, 2)["note"] == "not determined: bent"


def test_table_5(softmax):
    cube, fits = softmax
    fits = fits.copy()
    fits.loc[fits["quantity"] == "shared_error_gap", "exponent"] = 1.25
    frame = table_5(cube, fits)
    assert (frame["exponent"] == 1.25).all()
    assert row(frame, 1, 0)["exponent_published"] == 0.994
    assert row(frame, 1, 0)["exponent_difference"] == pytest.approx(1.25 - 0.994)


def test_a_spectrum_that_was_not_run():
    laws = {(0, 0, 2): Law(2.0, 0.1, 1.0)}
    frame = table_5(make_cube(laws, DEPTHS), make_fits(laws, DEPTHS))
    assert row(frame, 1, 0)["note"] == "not run" and math.isnan(row(frame, 1, 0)["exponent"])


def test_the_frame_of_the_fits_is_understood():
    laws = {(0, 0.25, 2): Law(1.27, 0.07, 0.9, 0.03)}
    cube = make_cube(laws, DEPTHS, noise=1e-6)
    frame = table_5(cube, fit_cube(cube, Fit(), replicates=20))
    first = row(frame, 0, 0.25)
    assert first["exponent"] == pytest.approx(0.9, abs=0.01) and first["note"] == ""


def test_written_tables_agree(softmax, tmp_path):
    cube, fits = softmax
    fits = fits.copy()
    fits.loc[(fits["a"] == 0.5) & (fits["b"] == 0.5), ["determined", "reason"]] = [False, "45% | noise_x"]
    frame = table_4(cube, fits)
    paths = [tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "tex")]
    write_table(frame, *paths)
    back = pd.read_csv(paths[0], keep_default_na=True)
    pd.testing.assert_frame_equal(back, frame.replace({"note": {"": np.nan}}), check_dtype=False)
    md, tex = (path.read_text(encoding="utf-8") for path in paths[1:])
    lines, (blank, *below) = md.splitlines()[:9], md.splitlines()[9:]
    assert blank == "" and [line.partition(" ")[0] for line in below] == ["1."]  # a note stands below the table
    assert len(lines) == 9 and len({line.replace(r"\|", "").count("|") for line in lines}) == 1
    assert "0.818 ± 0.0008" in md or "0.8180 ± 0.0008" in md
    assert r"not determined: 45% \| noise_x" in md and "see note" in md
    assert r"not determined: 45\% | noise\_x" in tex
    assert tex.count("\\\\\n") == 8 and tex.count("rule") == 3 and "nan" not in md + tex


def test_notes_of_a_row_share_a_cell(softmax, linear, tmp_path):
    fits = make_fits(softmax_laws(), DEPTHS, undetermined={(0, 0, 2): "flat loss"})
    paths = [tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "tex")]
    write_table(table_1(softmax[0], fits, linear, make_floors({(1, 0, 2): 1.0})), *paths)
    lines = paths[1].read_text(encoding="utf-8").splitlines()
    assert lines[2].split("|")[-2].strip() == "1"
    note = "softmax $L_0$: not determined: flat loss; linear floor at the softmax model's size: not computed"
    assert f"1. {note}" in lines


def sequential(cube):
    """Modes of linear attention that decay as exp(-4 L lambda_k), without noise."""
    decay = np.exp(-4 * cube["L"] * cube["eigenvalue"].sel(a=2))
    loss = decay * cube["eigenvalue"].sel(a=2) * cube["teacher_eigenvalue"].sel(b=2)
    cube["mode_loss"].loc[dict(a=2, b=2, k=1)] = loss.expand_dims(seed=2).transpose("L", "seed", "mode")
    return cube


def line(frame, quantity, at):
    return frame[(frame["quantity"] == quantity) & (frame["at"] == at)].iloc[0]


def test_modes_one_after_another_and_in_parallel():
    laws = softmax_laws()
    linear = sequential(make_cube(linear_easy_laws(), DEPTHS, modes=64))
    frame = modes(linear, make_cube(laws, DEPTHS, modes=16, noise=1e-7), make_fits(laws, DEPTHS))
    # a tenth of exp(-4 L / 16) is left at L = 4 log 10 = 9.21, which lies between the depths 8 and 16
    log_log = 8 * 2 ** ((math.log(10) - 2) / 2)
    assert line(frame, "depth at which 10 % remain", "j = 4")["linear_easy"] == pytest.approx(log_log)
    depth = [line(frame, "depth at which 50 % remain", f"j = {k}")["linear_easy"] for k in (2, 4, 8, 16)]
    assert depth[0] == 1 and depth == sorted(depth) and depth[3] > 20
    exponent = laws[1, 0, 2].exponent
    for k in (1, 2, 4, 8, 16):
        found = line(frame, "depth at which 10 % remain", f"j = {k}")["softmax_difficult"]
        assert found == pytest.approx(10 ** (1 / exponent), rel=1e-2)
    assert line(frame, "depth at which 10 % remain", "j = 32")["softmax_difficult_note"] == "no such mode"

    share = np.exp(-4 * 4 / np.array([1, 2, 4, 8, 16]) ** 2)
    assert line(frame, "spread over modes", "L = 4")["linear_easy"] == pytest.approx(np.std(share, ddof=1))
    mean = line(frame, "spread over modes", "mean over L")
    per_depth = [line(frame, "spread over modes", f"L = {depth}")["linear_easy"] for depth in DEPTHS[1:]]
    assert mean["linear_easy"] == pytest.approx(np.mean(per_depth))
    assert mean["softmax_difficult"] < 1e-3 < mean["linear_easy"]


def test_modes_that_are_not_learned_are_said(tmp_path):
    laws = softmax_laws()
    depths = (1, 2, 3, 4, 6, 8)
    softmax = make_cube({(1, 0, 2): laws[1, 0, 2]}, depths, noise=1e-7)
    frame = modes(make_cube({(2, 1, 1): Law(0, 1, 1)}, (1, 2), modes=4), softmax, make_fits(laws, depths))
    first = line(frame, "depth at which 10 % remain", "j = 1")
    assert math.isnan(first["linear_easy"]) and first["linear_easy_note"] == "not run"
    assert math.isnan(first["softmax_difficult"])
    assert first["softmax_difficult_note"].startswith("stays above 10 %: 0.1")
    mean = line(frame, "spread over modes", "mean over L")
    assert math.isnan(mean["linear_easy"]) and mean["linear_easy_note"].startswith("fewer than two")
    paths = [tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "tex")]
    write_table(frame, *paths)
    assert "nan" not in paths[1].read_text(encoding="utf-8") + paths[2].read_text(encoding="utf-8")


def test_depth_below_a_level():
    points = Curve(np.array([1, 2, 4]), np.array([1.0, 0.5, 0.0625]), np.array([0.0, 0.05, 0.00625]), np.ones(3, bool))
    depth, error, note = depth_below(points, "", 0.125)
    assert (depth, note) == (pytest.approx(2 * 2 ** (2 / 3)), "")
    # the interpolated log value errs by |(1/3, 2/3)| 10 %, and falls three times as fast as log depth grows
    assert error == pytest.approx(depth * 0.1 * math.hypot(1 / 3, 2 / 3) / 3)
    assert depth_below(points, "", 2.0)[::2] == (1.0, "at most: 1 already at L = 1")
    assert depth_below(points, "", 0.01)[2] == "stays above 1 %: 0.0625 at L = 4"
    assert depth_below(None, "not run", 0.1)[2] == "not run"


def test_models_of_another_size_are_named(softmax, linear):
    small = make_cube(linear_difficult_laws(), DEPTHS, noise=1e-5, size=(32, 256))
    size = "ours has d = 32, P = 256, the published d = 128, P = 1024"
    table = table_1(*softmax, small, make_floors({}))
    assert (table["linear_note"] == size).all() and not table["softmax_note"].str.contains("ours").any()
    assert table_3(small, make_floors({}))["plateau_note"].str.contains(size).all()
    assert (table_1(*softmax, linear, make_floors({}))["linear_note"] == "").all()
