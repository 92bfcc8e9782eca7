import matplotlib
import numpy as np
import pytest
from synthetic import (
    Law,
    linear_difficult_laws,
    linear_easy_laws,
    make_context_attention,
    make_cube,
    make_fits,
    make_selection,
    softmax_easy_laws,
    softmax_laws,
    with_update_scale,
)

from inverse_depth.curves import curve, plus_minus, trained_for
from inverse_depth.figures.difficult import figure_5, figure_6, figure_7, figure_14
from inverse_depth.figures.drawn import BLUE, GREEN, RED, figure_2, figure_8
from inverse_depth.figures.easy import THRESHOLD, attention_histories, figure_3, figure_4
from inverse_depth.figures.overview import figure_1
from inverse_depth.figures.panels import looks
from inverse_depth.figures.training import training_length_linear, training_length_softmax
from inverse_depth.figures.variants import depth_diagnostics, figure_11, figure_12, figure_13
from inverse_depth.illustration import illustration_dataset

DEPTHS = (1, 2, 4, 8, 16, 32, 64)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def points(ax, marker):
    """Depths and values drawn with a marker, open and filled together, by depth."""
    pairs = [
        (x, y)
        for line in ax.get_lines()
        if line.get_marker() == marker
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    return np.array(sorted(pairs)).T


def dashed(ax):
    return [line for line in ax.get_lines() if line.get_linestyle() == "--" and np.size(line.get_xdata()) > 2]


def bars(ax):
    """Half lengths of the error bars, panel by panel in the order drawn."""
    return np.concatenate([[abs(end[1] - start[1]) / 2 for start, end in bar.get_segments()] for bar in ax.collections])


def test_points_are_the_means_over_seeds():
    laws = softmax_laws()
    cube = make_cube(laws, DEPTHS, seeds=(0, 1, 2))
    panel = figure_6(cube, make_fits(laws, DEPTHS)).axes[0]
    for b, marker in ((0, "o"), (0.25, "s"), (0.5, "^"), (1, "D")):
        depth, value = points(panel, marker)
        assert depth.tolist() == list(DEPTHS)
        np.testing.assert_allclose(value, cube["loss"].sel(a=0, b=b, k=2).mean("seed"), rtol=1e-12)


def test_error_bars_join_seeds_and_evaluation():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 1.0)}, [1, 2], seeds=(0, 1, 2, 3))
    cube["loss"].loc[{"L": 1}] = np.array([2.0, 2.1, 2.2, 2.3])
    cube["loss_se"][:] = 0.05
    error = curve(cube, "loss", (0, 0), 2).error[0]
    np.testing.assert_allclose(error, np.hypot(np.std([2.0, 2.1, 2.2, 2.3], ddof=1) / 2, 0.05))
    np.testing.assert_allclose(bars(figure_5(cube).axes[0])[0], error)


def test_one_seed_has_the_evaluation_error():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 1.0)}, [1, 2], seeds=(0,))
    np.testing.assert_allclose(curve(cube, "loss", (0, 0), 2).error, cube["loss_se"].sel(L=[1, 2]).squeeze())


def test_fits_are_drawn_and_named():
    laws = softmax_laws()
    figure = figure_6(make_cube(laws, DEPTHS), make_fits(laws, DEPTHS))
    assert legend(figure.axes[0]) == [
        f"$b = {b}$: $\\alpha = {alpha} \\pm 0.02$"
        for b, alpha in (("0", "0.98"), ("0.25", "0.96"), ("0.5", "0.94"), ("1", "0.92"))
    ]
    line = dashed(figure.axes[0])[0]
    np.testing.assert_allclose(line.get_ydata(), laws[0, 0, 2].loss(line.get_xdata()))
    reducible = dashed(figure.axes[4])[0]
    np.testing.assert_allclose(reducible.get_ydata(), laws[0, 0, 2].loss(reducible.get_xdata()) - 2.007)


def test_shared_error_and_disagreement_start_at_two_layers():
    laws = softmax_laws()
    cube = make_cube(laws, DEPTHS)
    figure = figure_6(cube, make_fits(laws, DEPTHS))
    for ax, quantity in ((figure.axes[2], "shared_error"), (figure.axes[3], "disagreement")):
        depth, value = points(ax, "o")
        assert depth.tolist() == list(DEPTHS[1:])
        np.testing.assert_allclose(value, cube[quantity].sel(a=0, b=0, k=2, L=depth).mean("seed"))
        assert legend(ax)[0] == "$(0, 0)$" and len(legend(ax)) == 7


def test_undetermined_fit_has_no_exponent_and_no_line():
    laws = softmax_laws()
    fits = make_fits(laws, DEPTHS, undetermined={(0, 0, 2): "flat loss"})
    figure = figure_6(make_cube(laws, DEPTHS), fits)
    assert legend(figure.axes[0])[0] == r"$b = 0$: $\alpha$ not determined"
    assert len(dashed(figure.axes[0])) == 3
    assert legend(figure.axes[4])[-1] == "no floor determined: $b = 0$"


def test_a_fit_that_was_not_made_is_said():
    laws = softmax_laws()
    fits = make_fits(laws, DEPTHS)
    figure = figure_6(make_cube(laws, DEPTHS), fits[fits["b"] != 0.25])
    assert legend(figure.axes[0])[1] == "$b = 0.25$: no fit"


def test_spectra_that_were_not_run_are_named():
    laws = {key: law for key, law in softmax_laws().items() if key in [(0, 0, 2), (0, 1, 2)]}
    figure = figure_6(make_cube(laws, DEPTHS), make_fits(laws, DEPTHS))
    assert legend(figure.axes[0])[-1] == "not run: $b = 0.25$, $b = 0.5$"
    assert legend(figure.axes[2])[-1] == "not run: $(0, 0.25)$, $(0, 0.5)$, $(0.25, 0)$,\n$(0.5, 0)$, $(1, 0)$"


def test_unconverged_points_are_open():
    cube = make_cube(linear_difficult_laws(), DEPTHS)
    cube["converged"].loc[{"L": 4, "seed": 1}] = 0
    figure = figure_5(cube)
    open_depths = [
        line.get_xdata().tolist()
        for line in figure.axes[0].get_lines()
        if line.get_markerfacecolor() == "white" and np.size(line.get_xdata())
    ]
    assert open_depths == [[4]] * 4
    assert "not converged" in figure._supxlabel.get_text()
    assert figure_5(make_cube(linear_difficult_laws(), DEPTHS))._supxlabel is None


def test_seeds_that_were_not_run_do_not_count_as_unconverged():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 1.0)}, [1, 2])
    for name in ("loss", "converged"):
        cube[name].loc[{"seed": 1, "L": 2}] = np.nan
    read = curve(cube, "loss", (0, 0), 2)
    assert read.converged.all() and len(read) == 2


def test_plateau_is_in_the_legend():
    cube = make_cube(linear_difficult_laws(), DEPTHS, noise=0.0)
    assert legend(figure_5(cube).axes[0])[3].startswith(r"$b = 1$: plateau $2.5")


def test_mode_losses_are_normalised_and_stop_at_two_per_cent():
    laws = linear_easy_laws()
    cube = make_cube(laws, DEPTHS, modes=64)
    cube["mode_loss"].loc[dict(a=2, b=2, k=1)] = (
        (
            cube["eigenvalue"].sel(a=2)
            * cube["teacher_eigenvalue"].sel(b=2)
            * np.exp(-cube["L"] * cube["eigenvalue"].sel(a=2))
        )
        .expand_dims(seed=2, axis=1)
        .transpose("L", "seed", "mode")
    )
    panel = figure_3(cube, make_fits(laws, DEPTHS)).axes[2]
    depth, value = points(panel, "^")
    np.testing.assert_allclose(value, np.maximum(np.exp(-depth / 16), THRESHOLD))
    assert legend(panel) == [*(f"$j = {j}$" for j in (1, 2, 4, 8, 16, 32)), "2 % or less"]


def test_figure_4_keeps_what_is_not_above_zero_at_its_error():
    cube = make_cube(softmax_easy_laws(), DEPTHS, seeds=(0,))
    cube["loss"].loc[dict(L=4, a=0.5, b=0)] = -1e-9
    cube["loss_se"].loc[dict(L=4, a=0.5, b=0)] = 3e-9
    figure = figure_4(cube)
    depth, value = points(figure.axes[0], "P")  # the marker of (0.5, 0) in every figure
    np.testing.assert_allclose(value[depth == 4], 3e-9)
    zero = "predicting zero"
    assert [label.partition(":")[0] for label in legend(figure.axes[0])] == ["$a = 0$", "$a = 0.5$", "$a = 1$", zero]
    assert [label.partition(":")[0] for label in legend(figure.axes[1])] == ["$b = 0$", "$b = 0.5$", "$b = 1$", zero]


def test_figure_4_names_the_loss_of_the_shallowest_model():
    cube = make_cube(softmax_easy_laws(), DEPTHS, seeds=(0,), noise=0.0)
    cube["loss_se"].loc[dict(a=1)] = 3e-4
    labels = legend(figure_4(cube).axes[0])
    assert labels[1].endswith(r"$\mathcal{R}_{1} = 1.5 \times 10^{-5}$")
    assert labels[2].endswith(r"$\mathcal{R}_{1} < 3.0 \times 10^{-4}$")


def test_attention_along_training():
    cube = make_cube(softmax_easy_laws(), DEPTHS)
    panel = figure_4(cube).axes[2]
    assert legend(panel) == ["$L = 1$", "$L = 4$", "$L = 16$", "$L = 64$"]
    mass = cube["selected_mass"].sel(a=1, b=0, k=1, L=4).mean("seed").dropna("history")
    line = next(line for line in panel.get_lines() if line.get_label() == "$L = 4$")
    np.testing.assert_array_equal(line.get_xdata(), mass["history"])
    np.testing.assert_allclose(line.get_ydata(), mass)
    assert panel.get_xscale() == "log" and panel.get_ylim()[0] == 0


def test_a_seed_that_stopped_keeps_its_attention():
    cube = make_cube(softmax_easy_laws(), [1, 2])
    history = cube["history"].to_numpy()
    cube["selected_mass"].loc[dict(a=1, b=0, k=1, L=2)] = 0.5
    cube["selected_mass"].loc[dict(a=1, b=0, k=1, L=2, seed=1, history=history[:10])] = 0.9
    cube["selected_mass"].loc[dict(a=1, b=0, k=1, L=2, seed=1, history=history[10:])] = np.nan
    cube["selected_mass"].loc[dict(a=1, b=0, k=1, L=1)] = np.nan
    (step, mass), *others = attention_histories(cube).values()
    assert not others and step.tolist() == history.tolist()
    np.testing.assert_allclose(mass, 0.7)


@pytest.mark.parametrize("without", ["variable", "spectrum", "values"])
def test_no_attention_history_is_said(without):
    cube = make_cube(softmax_easy_laws(), [1, 2])
    if without == "variable":
        cube = cube.drop_vars("selected_mass")
    elif without == "spectrum":
        cube = cube.sel(a=[0.0, 0.5])
    else:
        cube["selected_mass"][:] = np.nan
    assert [text.get_text() for text in figure_4(cube).axes[2].texts if text.get_text() != "(c)"] == ["no data"]


def test_modes_collapse_if_they_share_a_law():
    laws = softmax_laws()
    figure = figure_7(make_cube(laws, DEPTHS, noise=1e-7), make_fits(laws, DEPTHS))
    first, last = points(figure.axes[1], "o"), points(figure.axes[1], "v")
    assert first[1][0] == last[1][0] == 1
    np.testing.assert_allclose(first[1], np.array(DEPTHS) ** -laws[1, 0, 2].exponent, rtol=1e-2)
    np.testing.assert_allclose(first, last, rtol=1e-2)


def test_modes_without_a_limit_are_named():
    laws = softmax_laws()
    figure = figure_7(make_cube(laws, (1, 4, 16)), make_fits(laws, (1, 4, 16)))
    assert legend(figure.axes[1])[-1].startswith("limit not determined: $j = 1$")
    assert not len(points(figure.axes[1], "o"))


def test_broader_targets():
    laws = softmax_laws()
    cube = make_cube(laws, DEPTHS)
    figure = figure_14(cube, make_fits(laws, DEPTHS))
    assert [len(legend(ax)) for ax in figure.axes] == [3, 4, 7, 7]
    np.testing.assert_allclose(points(figure.axes[1], "D")[1], cube["loss"].sel(a=0, b=0.25, k=16).mean("seed"))
    assert legend(figure.axes[2])[0] == "$(0.25, 0.25)$, top 2"


def test_models_that_stopped_earlier_keep_their_loss():
    cube = make_cube({(0, 0, 2): Law(2.0, 0.1, 1.0)}, [1, 2], steps=(200, 600, 1400))
    cube["loss_by_step"].loc[dict(L=1, step=[600, 1400])] = np.nan
    kept = trained_for(cube, 600)["loss"].sel(a=0, b=0, k=2)
    np.testing.assert_array_equal(kept.sel(L=1), cube["loss_by_step"].sel(a=0, b=0, k=2, L=1, step=200))
    np.testing.assert_array_equal(kept.sel(L=2), cube["loss_by_step"].sel(a=0, b=0, k=2, L=2, step=600))


def test_training_length_softmax():
    laws, steps = softmax_laws(), (2000, 6000, 14000)
    cube, fits = make_cube(laws, DEPTHS, steps=steps), make_fits(laws, DEPTHS, steps)
    fits.loc[(fits["a"] == 0) & (fits["b"] == 0) & (fits["step"] == "2000"), "determined"] = False
    losses, exponent, floor = training_length_softmax(cube, fits).axes
    np.testing.assert_allclose(
        points(losses, "s")[1], cube["loss_by_step"].sel(a=0, b=0, k=2, step=6000).mean("seed"), rtol=1e-12
    )
    assert list(exponent.get_lines()[0].get_xdata()) == [6000, 14000]
    np.testing.assert_allclose(exponent.get_lines()[0].get_ydata(), [0.98 * 0.9, 0.98])
    assert set(legend(exponent)) == {"final models, 95 %", r"$\alpha = 1$", "no fit at: 2k"}
    assert np.allclose(floor.get_lines()[0].get_ydata(), 2.007)


def test_training_length_linear_is_relative_to_zeta():
    laws, steps = linear_easy_laws(), (2000, 6000)
    figure = training_length_linear(make_cube(laws, DEPTHS, steps=steps), make_fits(laws, DEPTHS, steps))
    assert len(figure.axes) == 8
    markers = ("o", "s", "^", "D", "v", "P", "<")
    for marker in markers:
        np.testing.assert_allclose(points(figure.axes[-1], marker)[1], [1.3 * 0.85, 1.3])
    first, second = (points(figure.axes[-1], marker)[0] for marker in markers[:2])
    assert (second / first > 1.05).all()  # markers of one length stand beside each other


def test_models_still_in_training_are_open_at_their_training_length():
    laws, steps = softmax_laws(), (2000, 6000, 14000)
    cube = make_cube(laws, DEPTHS, steps=steps)
    cube["steps"].loc[dict(L=1)] = 2000
    cube["converged"].loc[dict(L=64, seed=0)] = 0
    figure = training_length_softmax(cube, make_fits(laws, DEPTHS, steps))
    losses, exponent, _ = figure.axes

    def open_at(ax, marker):
        lines = (
            line for line in ax.get_lines() if (line.get_marker(), line.get_markerfacecolor()) == (marker, "white")
        )
        return [int(x) for line in lines for x in line.get_xdata()]

    assert open_at(losses, "o") == list(DEPTHS[1:])  # after 2,000 steps only the shallowest had converged
    assert open_at(losses, "^") == [64]
    assert open_at(exponent, "o") == list(steps)
    assert "open markers" in figure._supxlabel.get_text()


def test_generalised_models_show_loss_shared_error_and_disagreement():
    laws = {(0, 0, 2): Law(2.0, 0.1, 0.9)}
    cube = make_cube(laws, DEPTHS)
    cube["mode_loss"][:] = np.nan
    losses, shared, disagreement = depth_diagnostics(cube, make_fits(laws, DEPTHS)).axes
    assert legend(losses) == [r"$(0, 0)$: $\alpha = 0.90 \pm 0.02$"]
    np.testing.assert_allclose(dashed(losses)[0].get_ydata(), laws[0, 0, 2].loss(dashed(losses)[0].get_xdata()))
    for ax, name, shown in ((losses, "loss", DEPTHS), (shared, "shared_error", DEPTHS[1:])):
        depth, value = points(ax, "o")
        assert depth.tolist() == list(shown)
        np.testing.assert_allclose(value, cube[name].sel(a=0, b=0, k=2, L=depth).mean("seed"))
    assert disagreement.get_yscale() == "log"


def test_a_shared_error_below_zero_is_drawn():
    laws = {(0, 0, 2): Law(0.2, 0.5, 1.0, gap=1.0)}
    cube = make_cube(laws, DEPTHS)
    assert (cube["shared_error"].sel(L=2) < 0).all()
    _, shared, disagreement = depth_diagnostics(cube, make_fits(laws, DEPTHS)).axes
    assert points(shared, "o")[0].tolist() == list(DEPTHS[1:])
    assert (shared.get_yscale(), disagreement.get_yscale()) == ("linear", "log")
    assert shared.get_ylim()[0] < cube["shared_error"].sel(L=2).mean()


def context_updates(depths=DEPTHS, targets=(2, 16)):
    laws = {(0, 0, 2): Law(1.8, 0.3, 0.8), (0, 0, 16): Law(0.25, 0.02, 2.0)}
    scales = {(0, 0, 2): -0.5 * np.arange(1, len(depths) + 1), (0, 0, 16): np.full(len(depths), -2.4)}
    kept = {key: law for key, law in laws.items() if key[2] in targets}
    cube = with_update_scale(make_cube(kept, depths), {key: scales[key] for key in kept})
    return cube, make_fits(kept, depths, undetermined={(0, 0, 16): "flat loss"})


def test_context_updates():
    cube, fits = context_updates()
    two, sixteen, m_two, m_sixteen = figure_11(cube, fits).axes
    assert legend(two) == [r"top 2: $\alpha = 0.80 \pm 0.02$"]
    assert legend(sixteen) == [r"top 16: $\alpha$ not determined"] and not dashed(sixteen)
    np.testing.assert_allclose(points(sixteen, "s")[1], cube["loss"].sel(a=0, b=0, k=16).mean("seed"))
    np.testing.assert_allclose(points(m_two, "o"), [DEPTHS[1:], -0.5 * np.arange(2, 8) + 0.05])
    np.testing.assert_allclose(points(m_sixteen, "s")[1], -2.35)
    np.testing.assert_allclose(bars(m_two), 0.05)
    assert m_two.get_yscale() == "linear" and m_two.get_ylim()[0] < -3.45 and m_two.get_ylim()[1] >= 0
    assert legend(m_two) == ["top 2"] and legend(m_sixteen) == ["top 16", "published: $-2.3$"]
    dotted = [line for line in m_sixteen.get_lines() if line.get_linestyle() == ":"]
    assert [set(line.get_ydata()) for line in dotted] == [{-2.3}]


def test_a_target_size_without_context_updates_is_named():
    figure = figure_11(*context_updates(targets=(2,)))
    assert [legend(ax) for ax in figure.axes[1::2]] == [["not run: top 16"], ["not run from two layers: top 16"]]
    assert [text.get_text() for text in figure.axes[3].texts][-1] == "no data"


def test_context_attention_is_drawn_beside_the_published_shares():
    measured = make_context_attention({2: 0.93, 16: 0.12}, tokens=8)
    measured["rho"][:], measured["rho_se"][:], measured["fit_residual"][:] = [0.951, 0.1234], [0.002, 0.03], 0.0123
    two, sixteen, bar = figure_12(measured).axes
    np.testing.assert_array_equal(two.images[0].get_array(), measured["attention"].sel(k=2))
    np.testing.assert_array_equal(sixteen.images[0].get_array(), measured["attention"].sel(k=16))
    assert two.images[0].get_clim() == sixteen.images[0].get_clim() == (0.01 / 8, 1)
    assert two.get_title(loc="left").splitlines() == [
        r"top 2: $\rho = 0.951 \pm 0.002$",
        "published: 0.9999; residual: 0.012",
    ]
    assert sixteen.get_title(loc="left").startswith("top 16: $\\rho = 0.12 \\pm 0.03$\npublished: 0.0989")
    assert bar.get_ylabel() == "Attention weight"


def test_context_attention_that_was_not_measured_is_named():
    two, sixteen, _ = figure_12(make_context_attention({2: 0.9}, tokens=8)).axes
    assert two.images and not sixteen.images
    assert sixteen.get_title(loc="left") == "top 16: not measured\npublished: 0.0989"
    nothing = figure_12(make_context_attention({2: np.nan}, tokens=8))
    assert len(nothing.axes) == 2 and not nothing.axes[0].images


def test_selection_percentiles_of_two_depths():
    measured = make_selection(depths=(1, 32), percentiles=(10, 50, 90))
    figure = figure_13(measured)
    levels, fall = figure.axes
    for line, depth in zip(levels.get_lines(), (1, 32), strict=True):
        assert line.get_label() == f"$L = {depth}$" and line.get_xdata().tolist() == [10, 50, 90]
        np.testing.assert_array_equal(line.get_ydata(), measured["selection_loss"].sel(L=depth))
    np.testing.assert_array_equal(fall.get_lines()[0].get_ydata(), measured["difference"])
    assert set(fall.get_lines()[1].get_ydata()) == {0}
    assert fall.get_ylabel() == r"$\Delta Q(q) = Q_{1}(q) - Q_{32}(q)$"
    edges = fall.collections[0].get_paths()[0].vertices
    middle = edges[edges[:, 0] == 50, 1]
    np.testing.assert_allclose(np.ptp(middle), 2 * measured["difference_se"].sel(percentile=50))
    assert figure._supxlabel.get_text().startswith("2,000 contexts")


def test_selection_that_was_not_measured():
    figure = figure_13(make_selection() * np.nan)
    assert [ax.texts[-1].get_text() for ax in figure.axes] == ["no data"] * 2


@pytest.mark.parametrize("draw", [figure_6, figure_7, depth_diagnostics, figure_14, training_length_softmax])
def test_a_poor_study_still_draws(draw, tmp_path):
    laws = {(0, 0, 2): Law(2.0, 0.1, 1.0)}
    cube = make_cube(laws, [1, 4, 16], seeds=(3,), steps=(300,), converged=False)
    for name in ("loss", "loss_se"):
        cube[name].loc[{"L": 4}] = np.nan
    fits = make_fits(laws, [1, 16], (300,), undetermined={(0, 0, 2): "2 depths cannot determine 3 parameters"})
    draw(cube, fits).savefig(tmp_path / "figure.png")


def overview():
    return {
        "linear_easy": make_cube(linear_easy_laws(), DEPTHS),
        "softmax_easy": make_cube(softmax_easy_laws(), [1, 2, 4]),
        "linear_difficult": make_cube(linear_difficult_laws(), [1, 2, 4]),
        "softmax_difficult": make_cube(softmax_laws(), DEPTHS),
    }


def marker_of(ax, label):
    return next(line.get_marker() for line in ax.get_lines() if line.get_label() == label)


def test_overview_draws_every_cube():
    cubes = overview()
    easy, flat, plateau, deep = figure_1(**cubes).axes
    depth, value = points(easy, marker_of(easy, "$(2, 0.5)$"))
    np.testing.assert_allclose(value, cubes["linear_easy"]["loss"].sel(a=2, b=0.5, k=1, L=depth).mean("seed"))
    depth, value = points(deep, marker_of(deep, "$(0.5, 0)$"))
    loss = cubes["softmax_difficult"]["loss"].sel(a=0.5, b=0, k=2).mean("seed")
    np.testing.assert_allclose(value, loss.sel(L=depth) / loss.sel(L=1))
    coincide = "$a = 0$: curves of all $b$ coincide"
    assert [len(legend(ax)) - (coincide in legend(ax)) for ax in (easy, flat, plateau, deep)] == [7, 5, 7, 7]
    assert [coincide in legend(ax) for ax in (easy, flat, plateau, deep)] == [False, False, True, True]
    assert marker_of(flat, "$(1, 0)$") == marker_of(plateau, "$(1, 0)$") == marker_of(deep, "$(1, 0)$")
    assert easy.get_ylim() == flat.get_ylim() and plateau.get_ylim() == deep.get_ylim()
    assert all(ax.get_xscale() == ax.get_yscale() == "log" for ax in (easy, flat, plateau, deep))


def test_overview_shows_solved_tasks_at_their_error_and_names_what_is_missing():
    cubes = overview()
    cubes["softmax_easy"]["loss"].loc[dict(a=0, b=0)] = -1e-9
    cubes["softmax_easy"]["loss_se"].loc[dict(a=0, b=0)] = 3e-9
    cubes["softmax_difficult"]["loss"].loc[dict(a=1, b=0, L=1)] = np.nan
    cubes["linear_difficult"]["loss"][:] = np.nan
    _, flat, plateau, deep = figure_1(**cubes).axes
    np.testing.assert_allclose(points(flat, marker_of(flat, "$(0, 0)$"))[1], 3e-9)
    assert legend(plateau) == ["not run: any spectrum"]
    assert legend(deep)[-1] == "no $L = 1$: $(1, 0)$"


def overlaps(texts):
    boxes = [text.get_window_extent() for text in texts]
    return [
        (one.get_text(), other.get_text())
        for i, (one, a) in enumerate(zip(texts, boxes, strict=True))
        for other, b in zip(texts[:i], boxes[:i], strict=True)
        if a.overlaps(b)
    ]


@pytest.mark.parametrize("seed", [0, 4, 19])
@pytest.mark.parametrize("draw", [figure_2, figure_8])
def test_names_in_drawn_figures_stay_apart_and_inside(draw, seed):
    figure = draw(illustration_dataset(seed))
    figure.draw_without_rendering()
    for ax in figure.axes[:2]:
        names = [text for text in ax.texts if text.get_text() not in ("(a)", "(b)")]
        assert len(names) >= 2 and overlaps(names) == []
        frame = ax.get_window_extent()
        for box in (text.get_window_extent() for text in names):
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1


def test_the_tasks_are_drawn_with_their_numbers():
    contexts = illustration_dataset(19)
    figure = figure_2(contexts)
    for ax, task in zip(figure.axes, ("easy", "difficult"), strict=False):
        context = contexts.sel(task=task)
        heading = ax.get_legend().get_title().get_text()
        assert heading.endswith(f"= {float(context['target']):.2f}$")
        chosen = np.flatnonzero(context["selected"])
        names = [text.get_text() for text in ax.texts]
        for i in chosen:
            assert f"y_{{{i + 1}}}" in heading
            assert f"$y_{{{i + 1}}} = {float(context['labels'][i]):.2f}$" in names
        np.testing.assert_allclose(ax.collections[0].get_offsets(), context["tokens"])
        rings = next(line for line in ax.get_lines() if line.get_label() == " selected token")
        np.testing.assert_allclose(rings.get_xydata(), context["tokens"][chosen])


def test_the_geometry_of_target_and_predictable_part():
    contexts = illustration_dataset(19)
    context = contexts.sel(task="difficult")
    query, target, mean = (context[name].to_numpy() for name in ("query", "target_input", "predictable_part"))
    along = query / np.linalg.norm(query)
    for ax in figure_8(contexts).axes:
        vector = {line.get_color(): line.get_xydata() for line in ax.get_lines() if line.get_linewidth() == 1.8}
        np.testing.assert_allclose(vector[GREEN][0], 0)
        np.testing.assert_allclose(vector[GREEN][1][0], target @ along)
        np.testing.assert_allclose(np.linalg.norm(vector[GREEN][1]), np.linalg.norm(target))
        np.testing.assert_allclose(vector[BLUE][1][0], mean @ along)
        np.testing.assert_allclose(vector[RED], [vector[BLUE][1], vector[GREEN][1]])


@pytest.mark.parametrize("low", [0.3, 1.9, 1e-3, 1e-9])
def test_the_loss_axis_has_ticks_to_read(low):
    laws = {(0, 0, 2): Law(low, 2.1 - low, 1.0)}
    figure = figure_5(make_cube(laws, [1, 2**8, 2**16, 2**32]))
    figure.draw_without_rendering()
    panel = figure.axes[0]
    bottom, top = panel.get_ylim()
    labels = [
        text.get_text()
        for text, place in zip(panel.get_yticklabels(), panel.get_yticks(), strict=True)
        if bottom <= place <= top
    ]
    assert 2 <= len(labels) <= 12 and len(set(labels)) == len(labels) and "" not in labels


def test_looks_differ_in_colour_marker_and_grey():
    chosen = looks([(0, 0), (0, 1), (0, 2), (0, 3)], [(0, 0), (1, 0), (2, 0), (3, 0)])
    assert len(chosen) == 7
    assert len({look.marker for look in chosen.values()}) == 7
    grey = sorted(float(np.dot(look.color, [0.299, 0.587, 0.114])) for look in chosen.values())
    assert min(np.diff(grey)) > 0.02


def test_drawing_leaves_the_settings_alone():
    before = dict(matplotlib.rcParams)
    figure_4(make_cube(softmax_easy_laws(), [1, 2]))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (59.8502, 0.0213, "59.85 ± 0.02"),
        (0.98, 0.007, "0.980 ± 0.007"),
        (0.97, 0.01, "0.97 ± 0.01"),
        (0.97213, 0.0123456, "0.972 ± 0.012"),
        (123.4, 7.0, "123 ± 7"),
        (2.0071234, 0.0, "2.0071"),
        (2.0071234, float("nan"), "2.0071"),
    ],
)
def test_rounding(value, error, text):
    assert plus_minus(value, error) == text


def test_a_spectrum_that_a_study_adds_is_drawn_where_it_belongs():
    laws = softmax_laws() | {(0, 2, 2): Law(0.2, 0.01, 0.9), (0.75, 0.75, 2): Law(0.3, 0.01, 0.9)}
    cube, fits = make_cube(laws, DEPTHS), make_fits(laws, DEPTHS)
    figure = figure_6(cube, fits)
    assert any(label.startswith("$b = 2$") for label in legend(figure.axes[0]))
    assert "$(0, 2)$" in legend(figure.axes[2]) and not any("0.75" in label for label in legend(figure.axes[2]))
    assert any(label.startswith("$(0.75, 0.75)$") for label in legend(figure_14(cube, fits).axes[0]))
