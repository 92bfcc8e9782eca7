"""Evaluation: unbiased estimates on common contexts, with honest errors; and cubes that hold them."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from test_training import BRIEF, CPU, SMALL

from inverse_depth import evaluation
from inverse_depth.config import Run
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.cubes import build_cube, open_cube
from inverse_depth.evaluation import _estimate, control_dataset, evaluate
from inverse_depth.models.linear import LinearAttention
from inverse_depth.provenance import attributes
from inverse_depth.runs import load_model
from inverse_depth.spectra import power_law_spectrum
from inverse_depth.storage import StorageError, write_dataset
from inverse_depth.training import family_of, train_run

A, B, K = 1.0, 0.5, 2
EXPERIMENT = SMALL.model_copy(update={"evaluation_contexts": 256 * 64})
LINEAR_EASY = SMALL.model_copy(
    update={"attention": "linear", "task": "easy", "context_length": "infinite", "evaluation_contexts": 256 * 16}
)


def trained(path, experiment, runs, recipe=BRIEF):
    return [
        train_run(experiment, recipe, run, checkpoint=path / f"{i}.pt", device="cpu", log=lambda line: None)
        for i, run in enumerate(runs)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    points = [Run("small", depth, A, B, K, seeds) for depth in (1, 4) for seeds in ((0, 1), (2,))]
    return trained(tmp_path_factory.mktemp("runs"), EXPERIMENT, points)


@pytest.fixture(scope="module")
def control():
    return control_dataset(family_of(EXPERIMENT, A, K), 256 * 512, device="cpu")


@pytest.fixture(scope="module")
def evaluated(runs, control):
    return evaluate(runs, control, EXPERIMENT, a=A, b=B, k=K, device="cpu")


def independent_loss(run, seed_index, count=200_000):
    """Loss with sampled teachers on contexts of another stream: the definition, without any reduction of variance."""
    model = load_model(run, int(run["step"][-1]), CPU)
    total = []
    with torch.no_grad():
        for chunk in range(10):
            family = Family("difficult", 4, 12, K, A)
            contexts = sample_contexts(family, count // 10, [generator("independent", 0, chunk)])
            residual = model.residual(contexts)[seed_index]
            beta = torch.randn(residual.shape, generator=torch.Generator().manual_seed(chunk))
            beta = beta * torch.tensor(power_law_spectrum(4, B) ** 0.5, dtype=torch.float32)
            total.append((residual * beta).sum(-1).double().square())
    losses = torch.cat(total)
    return float(losses.mean()), float(losses.std()) / np.sqrt(count)


def test_loss_is_the_population_loss(runs, evaluated):
    for run in runs:
        depth = json.loads(run.attrs["config"])["run"]["depth"]
        for i, seed in enumerate(run["seed"].values):
            point = evaluated.sel(L=depth, seed=seed)
            mean, error = independent_loss(run, i)
            assert abs(float(point["loss"]) - mean) < 4 * np.hypot(error, float(point["loss_se"]))


def test_control_variate_lowers_the_error_and_keeps_the_mean(tmp_path, control):
    recipe = BRIEF.model_copy(update={"batch_size": 64, "first_round": 400, "max_steps": 400})
    run = trained(tmp_path, EXPERIMENT, [Run("small", 4, A, B, K, (0, 1))], recipe)
    controlled, plain = (evaluate(run, c, EXPERIMENT, a=A, b=B, k=K, device="cpu") for c in (control, None))
    assert (controlled["loss_se"] < 0.6 * plain["loss_se"]).all()
    assert (abs(controlled["loss"] - plain["loss"]) < 4 * plain["loss_se"]).all()
    xr.testing.assert_equal(controlled["loss_difference"], plain["loss_difference"])


def test_decomposition_is_exact(runs, evaluated):
    depth = evaluated["L"]
    whole = evaluated["shared_error"] + evaluated["disagreement"] / depth
    xr.testing.assert_allclose(whole.sel(L=4), evaluated["loss"].sel(L=4), rtol=1e-5)
    assert evaluated["shared_error"].sel(L=1).isnull().all()
    assert (evaluated["disagreement"].sel(L=4) > 0).all()
    # against its definition, the mean over pairs of layers, on the same contexts
    model = load_model(runs[2], int(runs[2]["step"][-1]), CPU)
    weights = torch.tensor(power_law_spectrum(4, B))
    pairs = []
    with torch.no_grad():
        for block in range(evaluation.BLOCKS):
            contexts = sample_contexts(Family("difficult", 4, 12, K, A), 64, [generator("evaluation", 0, block)])
            v = model.layer_residuals(contexts)[0].double()
            gram = torch.einsum("cld,cmd,d->clm", v, v, weights)
            pairs.append((gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(1)).mean() / 12)
    raw = float(torch.stack(pairs).mean())
    point = evaluated.sel(L=4, seed=0)
    assert abs(raw - float(point["shared_error"])) < 5 * float(point["shared_error_se"]) + 0.02 * raw
    plain = evaluate([runs[2]], None, EXPERIMENT, a=A, b=B, k=K, device="cpu")
    np.testing.assert_allclose(plain["shared_error"].sel(seed=0).item(), raw, rtol=1e-5)


def test_modes_sum_to_the_loss_and_blocks_average_to_it(runs, evaluated):
    plain = evaluate(runs, None, EXPERIMENT, a=A, b=B, k=K, device="cpu")
    xr.testing.assert_allclose(plain["mode_loss"].sum("mode"), plain["loss"], rtol=1e-6)
    gap = abs(evaluated["mode_loss"].sum("mode") - evaluated["loss"])
    assert (gap < evaluated["loss_se"]).all()
    for name in ("loss", "shared_error"):
        kept = evaluated[name].notnull()
        np.testing.assert_allclose(
            evaluated[f"{name}_block"].mean("block").where(kept), evaluated[name].where(kept), rtol=1e-9
        )
    last = evaluated["loss_by_step"].isel(step=-1)
    xr.testing.assert_allclose(last.drop_vars("step"), evaluated["loss"], rtol=1e-9)


def test_difference_is_to_the_deepest_of_the_same_seed(runs):
    uneven = evaluate(runs[:3], None, EXPERIMENT, a=A, b=B, k=K, device="cpu")  # seed 2 has depth 1 only
    assert float(uneven["loss_difference"].sel(L=4, seed=0)) == 0
    assert float(uneven["loss_difference"].sel(L=1, seed=2)) == 0
    assert uneven["loss"].sel(L=4, seed=2).isnull()
    expected = uneven["loss"].sel(L=1, seed=0) - uneven["loss"].sel(L=4, seed=0)
    np.testing.assert_allclose(uneven["loss_difference"].sel(L=1, seed=0), expected, rtol=1e-9)
    assert float(uneven["loss_difference_se"].sel(L=1, seed=0)) < float(uneven["loss_se"].sel(L=1, seed=0))


def test_errors_cover(monkeypatch):
    """Standard errors of the controlled estimate, over synthetic blocks with known truth."""
    random = np.random.default_rng(0)
    inside, trials = 0, 400
    for _ in range(trials):
        common = random.normal(size=256)
        values = 5 + common + 0.2 * random.normal(size=256)
        known = 2 + 0.1 * random.normal(size=(1, 256))
        mean, error, blocks = _estimate(values[None], (2 + common)[None], known)
        inside += abs(mean[0] - 5) < 2 * error[0]
        assert error[0] < 0.5 * values.std(ddof=1) / 16
        np.testing.assert_allclose(blocks.mean(), mean[0])
    assert 0.92 < inside / trials < 0.985


def test_linear_control_is_exact_and_lowers_the_error(tmp_path, monkeypatch):
    run = trained(tmp_path, LINEAR_EASY, [Run("small", 3, A, B, 1, (0,))])
    controlled = evaluate(run, None, LINEAR_EASY, a=A, b=B, k=1, device="cpu")
    monkeypatch.setattr(LinearAttention, "isotropic_response", lambda self, eigenvalues: None)
    plain = evaluate(run, None, LINEAR_EASY, a=A, b=B, k=1, device="cpu")
    assert controlled["loss_se"].item() < 0.5 * plain["loss_se"].item()
    assert abs((controlled["loss"] - plain["loss"]).item()) < 4 * plain["loss_se"].item()


def test_b_collapse(tmp_path):
    """With a = 0 softmax attention never sees the teacher: R_L(0, b) = mean(omega) R_L(0, 0) for the same weights.

    The loss at b is taken here on rotated contexts with the rotation drawn, not integrated out.
    """
    run = trained(tmp_path, EXPERIMENT, [Run("small", 4, 0.0, 0.0, K, (0,))])[0]
    base = evaluate([run], None, EXPERIMENT, a=0.0, b=0.0, k=K, device="cpu")
    model, omega = load_model(run, int(run["step"][-1]), CPU), torch.tensor(power_law_spectrum(4, 1.0))
    total = []
    for block in range(64):
        contexts = sample_contexts(Family("difficult", 4, 12, K, 0.0), 1024, [generator("collapse", 0, block)])
        rotation = torch.linalg.qr(torch.randn(1024, 4, 4, generator=torch.Generator().manual_seed(block))).Q
        with torch.no_grad():
            v = model.residual(contexts)[0]
        total.append((rotation.mT @ v[..., None])[..., 0].double().square() @ omega)
    losses = torch.cat(total)
    error = np.hypot(float(losses.std()) / 256, base["loss_se"].item())
    assert abs(float(losses.mean()) - float(omega.mean() * base["loss"].item())) < 4 * error
    collapsed = evaluate([run], None, EXPERIMENT, a=0.0, b=1.0, k=K, device="cpu")
    np.testing.assert_allclose(collapsed["loss"], float(omega.mean()) * base["loss"], rtol=1e-9)


def test_teachers_evaluated_together_are_as_those_evaluated_alone(tmp_path):
    points = [Run("small", depth, 0.0, 0.0, K, (0,)) for depth in (1, 2)]
    runs = trained(tmp_path, EXPERIMENT, points)
    together = evaluate(runs, None, EXPERIMENT, a=0.0, b={0.0: [1, 2], 1.0: [1]}, k=K, device="cpu")
    for b, chosen in ((0.0, runs), (1.0, runs[:1])):
        alone = evaluate(chosen, None, EXPERIMENT, a=0.0, b=b, k=K, device="cpu")
        xr.testing.assert_allclose(together.sel(b=b).dropna("L", how="all", subset=["loss"]), alone, rtol=1e-12)
    assert together["loss"].sel(L=2, b=1).isnull().all()


@pytest.fixture(scope="module")
def cube(evaluated):
    evaluated = evaluated.assign_attrs(attributes("x", {}))
    return build_cube([evaluated], "small", {"d": 4})


def test_cube_has_the_axes_and_attributes(cube, evaluated):
    assert cube["loss"].dims == ("L", "a", "b", "k", "seed")
    assert float(cube["loss"].sel(L=4, a=A, b=B, k=K, seed=2)) == float(evaluated["loss"].sel(L=4, seed=2))
    assert cube["steps"].sel(L=1, a=A, b=B, k=K).values.tolist() == [35, 35, 35]
    assert set(np.unique(cube["converged"])) <= {0.0, 1.0}
    for name, variable in cube.variables.items():
        assert variable.attrs.get("long_name") and variable.attrs.get("units"), name
    assert cube["loss"].attrs["equation"]
    for name in ("title", "source", "references", "config", "config_hash", "versions", "commit", "device"):
        assert cube.attrs[name], name


def test_cube_of_several_spectra_is_nan_where_nothing_ran(cube, evaluated, tmp_path):
    other = trained(tmp_path, EXPERIMENT, [Run("small", 1, 0.0, 0.0, K, (0,))])
    more = evaluate(other, None, EXPERIMENT, a=0.0, b=0.0, k=K, device="cpu").assign_attrs(attributes("x", {}))
    wide = build_cube([evaluated.assign_attrs(attributes("x", {})), more], "small", {})
    assert wide["a"].values.tolist() == [0.0, A] and wide["b"].values.tolist() == [0.0, B]
    assert wide["loss"].notnull().sum() == 7 and wide["converged"].notnull().sum() == 7
    xr.testing.assert_equal(wide["loss"].sel(a=A, b=B), cube["loss"].sel(a=A, b=B))


def test_open_cube(cube, tmp_path):
    write_dataset(cube, tmp_path / "cube.nc")
    xr.testing.assert_equal(open_cube(tmp_path / "cube.nc"), cube)
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "cube.nc").load(), cube)
    write_dataset(cube.rename(L="depth"), tmp_path / "other.nc")
    with pytest.raises(StorageError, match=r"other\.nc: not a cube: its dimensions are .*allowed is a variable 'loss'"):
        open_cube(tmp_path / "other.nc")
    (tmp_path / "cut.nc").write_bytes((tmp_path / "cube.nc").read_bytes()[:5000])
    with pytest.raises(StorageError, match=r"cut\.nc"):
        open_cube(tmp_path / "cut.nc")
