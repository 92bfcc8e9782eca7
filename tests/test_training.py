"""Training: pure batches, resuming to the same bits, convergence, and clear ends."""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from inverse_depth import checkpoints, training
from inverse_depth.config import Experiment, Grid, Run, Training
from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.devices import prepare_device
from inverse_depth.models.base import ModelSpec, build_model
from inverse_depth.optimiser import Adam
from inverse_depth.progress import Pace, TrainingError
from inverse_depth.runs import load_model
from inverse_depth.training import Objective, annealing, parts, rounds, train_run

GRID = [Grid(depths=[1], spectra=[(0, 0)], target_sizes=[2], seeds=[[0]])]
SMALL = Experiment(
    attention="softmax",
    task="difficult",
    dimension=4,
    context_length=12,
    width=4,
    training="brief",
    evaluation_contexts=256,
    grid=GRID,
)
BRIEF = Training(
    parameters="merged", batch_size=16, learning_rate=0.02, warmup=2, first_round=5, max_steps=40, tolerance=1e-9
)
CPU = torch.device("cpu")
HONEST = Objective.__call__


def train(tmp_path, experiment=SMALL, recipe=BRIEF, run=None, log=lambda line: None):
    run = run or Run("small", 3, 1.0, 0.5, 2, (0, 1))
    return train_run(experiment, recipe, run, checkpoint=tmp_path / "run.pt", device="cpu", log=log)


def equal(one, other):
    """Whether two runs agree to the bit, but for how long they took."""
    drop = ("seconds",)
    strip = [ds.assign_attrs({name: "" for name in drop}) for ds in (one, other)]
    return strip[0].identical(strip[1])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_a_run_killed_at_any_step_ends_with_the_same_bits(tmp_path, monkeypatch, attention):
    experiment = SMALL.model_copy(update={"attention": attention})
    undisturbed = train(tmp_path / "a", experiment)
    monkeypatch.setattr(Pace, "due", lambda self: True)  # a checkpoint after every step
    step = Adam.step
    for survives in (1, 4, 6, 9, 2):
        left = [survives]

        def dies(self, rate, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return step(self, rate)

        monkeypatch.setattr(Adam, "step", dies)
        with pytest.raises(Killed):
            train(tmp_path / "b", experiment)
    monkeypatch.setattr(Adam, "step", step)
    lines = []
    resumed = train(tmp_path / "b", experiment, log=lines.append)
    assert "resuming" in lines[0]
    assert equal(undisturbed, resumed)


def test_a_run_killed_after_its_last_round_ends_with_the_same_bits(tmp_path, monkeypatch):
    for recipe in (BRIEF.model_copy(update={"tolerance": 0.9}), BRIEF):  # one that converges early, one that does not
        whole = train(tmp_path / "a", recipe=recipe)
        assert equal(train(tmp_path / "a", recipe=recipe), whole)  # the checkpoint is still there
        (tmp_path / "a/run.pt").unlink()


def test_a_damaged_or_foreign_checkpoint_is_named_and_ignored(tmp_path):
    expected, path = train(tmp_path), tmp_path / "run.pt"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], b"", b"nonsense"):
        path.write_bytes(content)
        lines = []
        assert equal(train(tmp_path, log=lines.append), expected)
        assert "damaged" in lines[0] and str(path) in lines[0]
    lines = []
    train(tmp_path, recipe=BRIEF.model_copy(update={"batch_size": 8}), log=lines.append)
    assert "other settings" in lines[0]


@pytest.mark.parametrize(
    "content",
    [
        [1, 2], 3, "text", None, torch.zeros(2), {}, {"identity": "me"}, {"state": {}},
        {"identity": "me", "state": [1]}, {"identity": torch.zeros(2), "state": {}},
    ],
)  # fmt: skip
def test_a_whole_file_that_holds_no_state_is_named_and_ignored(tmp_path, monkeypatch, content):
    save, path = torch.save, tmp_path / "run.pt"
    monkeypatch.setattr(torch, "save", lambda value, file: save(content, file))
    checkpoints.save(path, "me", {})
    state, reason = checkpoints.load(path, "me", CPU)
    assert state is None and reason.startswith(f"checkpoint {path} holds no state of a run and was ignored")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_any_bytes_with_a_fitting_checksum_are_named_and_ignored(tmp_path):
    checkpoints.save(tmp_path / "run.pt", "me", {"losses": torch.zeros(3), "step": 1})
    start = len(checkpoints._MAGIC) + 32
    whole, rng = (tmp_path / "run.pt").read_bytes()[start:], np.random.default_rng(0)
    bodies = [b"", b"nonsense", b"PK\x05\x06" + bytes(18), b"\x80\x02.", b"\x80\x02]q\x00X\xff\xff\xff\x7f."]
    pickled = whole.index(b"\x80\x02")
    for _ in range(300):
        at = int(rng.integers(pickled, pickled + 200))
        bodies.append(whole[:at] + rng.bytes(2) + whole[at + 2 :])
    for body in bodies:
        (tmp_path / "run.pt").write_bytes(checkpoints._MAGIC + hashlib.sha256(body).digest() + body)
        state, reason = checkpoints.load(tmp_path / "run.pt", "me", CPU)
        assert isinstance(state, dict) or (state is None and str(tmp_path / "run.pt") in reason)


def test_a_checkpoint_holds_no_code(tmp_path):
    checkpoints.save(tmp_path / "c.pt", "me", {"path": Path("x")})
    state, reason = checkpoints.load(tmp_path / "c.pt", "me", CPU)
    assert state is None and "cannot be read" in reason


def test_batches_are_pure_functions_of_seed_and_step():
    family = Family("difficult", 4, 9, 2, 1.0)
    one, again, other = (sample_contexts(family, 3, [generator("data", 5, step)]) for step in (7, 7, 8))
    assert torch.equal(one.tokens, again.tokens) and torch.equal(one.rotation, again.rotation)
    assert not torch.equal(one.tokens, other.tokens)


def test_each_seed_has_data_of_its_own(tmp_path):
    result = train(tmp_path)
    assert not np.allclose(result["training_loss"][0], result["training_loss"][1], rtol=1e-3)


def test_rounds_double_and_anneal_to_zero():
    recipe = Training(**{**BRIEF.model_dump(), "first_round": 100, "max_steps": 1499})
    assert rounds(recipe) == [(0, 100), (100, 300), (300, 700)]
    rates = [annealing(step, 200, recipe) for step in range(200)]
    assert rates[0] < 0.4 and max(rates) > 0.99 and rates[-1] < 1e-3
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[3:]))


def test_training_stops_when_a_round_gains_less_than_the_tolerance(tmp_path):
    hasty = train(tmp_path / "a", recipe=BRIEF.model_copy(update={"tolerance": 0.9}))
    patient = train(tmp_path / "b", recipe=BRIEF.model_copy(update={"tolerance": 1e-12, "max_steps": 15}))
    assert hasty["converged"].all() and hasty["steps"].values.tolist() == [15, 15]
    # a single round has nothing to be compared with
    single = train(tmp_path / "c", recipe=BRIEF.model_copy(update={"tolerance": 0.9, "max_steps": 5}))
    assert not single["converged"].any()
    gain = 1 - patient["validation_loss"].isel(step=-1) / patient["validation_loss"].isel(step=0)
    assert (patient["converged"] == (abs(gain) < 1e-12)).all()


def test_training_lowers_the_loss_towards_what_is_known():
    """One linear layer on the easy task: the optimum over B is isotropic, and its loss is known."""
    experiment = SMALL.model_copy(update={"attention": "linear", "task": "easy", "context_length": "infinite"})
    recipe = Training(**{**BRIEF.model_dump(), "batch_size": 64, "first_round": 400, "max_steps": 400})
    run = Run("small", 1, 1.0, 0.0, 1, (0,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "save", lambda *arguments: None)
        result = train_run(experiment, recipe, run, checkpoint=Path("none.pt"), device="cpu", log=lambda line: None)
    eigenvalues = np.arange(1, 5) ** -1.0
    # min_c sum_k lambda_k (1 - c lambda_k)^2
    optimum = eigenvalues.sum() - (eigenvalues**2).sum() ** 2 / (eigenvalues**3).sum()
    assert 0.9 * optimum < result["validation_loss"].values.item() < 1.15 * optimum


def test_attention_on_the_target_is_followed_along_training(tmp_path):
    """Softmax on the easy task puts its attention on the match, and the file tells when; linear attention has none."""
    easy = SMALL.model_copy(update={"task": "easy"})
    recipe = Training(**{**BRIEF.model_dump(), "first_round": 100, "max_steps": 300})
    result = train(tmp_path, easy, recipe, Run("small", 2, 0.0, 0.0, 1, (0, 1)))
    history = result["history"].values
    assert history[0] == 1 and history[-1] == 300 and (np.diff(history) > 0).all()
    assert result["selected_mass"].dims == ("seed", "history") and result["training_loss"].notnull().all()
    model = load_model(result, 300, CPU)
    contexts = sample_contexts(Family("easy", 4, 12, 1, 0.0), 256, [generator("validation", 0, 0)])
    with torch.no_grad():
        at_the_end = model.mean_attention(contexts)[:, :, 0].mean(1)
    assert np.allclose(result["selected_mass"].isel(history=-1), at_the_end, rtol=1e-5)
    assert (result["selected_mass"].isel(history=-1) > 1.2 * result["selected_mass"].isel(history=0)).all()
    linear = train(tmp_path / "b", SMALL.model_copy(update={"attention": "linear"}))
    assert linear["selected_mass"].isnull().all()


@pytest.mark.parametrize("variant, width", [("decoupled_values", 4), ("context_updates", 4), ("single_stream", 6)])
def test_variants_train(tmp_path, variant, width):
    experiment = SMALL.model_copy(update={"variant": variant, "width": width})
    teacher = "sampled" if variant == "single_stream" else "integrated"
    recipe = Training(
        **{**BRIEF.model_dump(), "batch_size": 64, "first_round": 60, "max_steps": 180, "teacher": teacher}
    )
    result = train(tmp_path, experiment, recipe, Run("small", 3, 0.0, 0.0, 2, (0, 1)))
    loss = result["training_loss"]
    assert (loss.isel(history=slice(-5, None)).mean("history") < 0.8 * loss.isel(history=0)).all()
    assert np.isfinite(result["validation_loss"]).all()


def test_the_optimiser_is_pytorchs_with_a_rate_for_each_parameter():
    random = torch.Generator().manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(4))] for _ in range(2))
    groups = [{"params": [p], "lr": 0.1 * factor} for p, factor in zip(theirs, (1.0, 0.3), strict=True)]
    reference = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-12)
    optimiser = Adam(list(zip(ours, (1.0, 0.3), strict=True)))
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=random)
            other.grad = one.grad.clone()
        optimiser.step(0.1)
        reference.step()
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(ours, theirs, strict=True))


def test_training_does_not_load_the_compiler():
    code = "import sys; from test_training import train; from pathlib import Path; train(Path(sys.argv[1]));"
    code += "sys.exit('torch._dynamo' in sys.modules)"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
        assert subprocess.run([sys.executable, "-c", code, folder], env=environment).returncode == 0


def test_a_lost_loss_stops_the_run_and_names_the_point(tmp_path, monkeypatch):
    monkeypatch.setattr(Objective, "__call__", lambda self, *arguments: HONEST(self, *arguments) * float("nan"))
    with pytest.raises(TrainingError, match=r"small L3_a1_b0\.5_k2_s0-1: the loss is not finite at step 0"):
        train(tmp_path)


def test_the_gradient_does_not_depend_on_how_the_batch_is_cut(monkeypatch):
    model = build_model(ModelSpec("softmax", "controlled", "merged", 5, 4, 4), (0, 1), torch.float64)
    family = Family("difficult", 4, 12, 2, 1.0)
    contexts = sample_contexts(family, 10, [generator("data", s, 0) for s in (0, 1)], dtype=torch.float64)
    objective = Objective(family, 0.5, torch.float64, CPU)
    gradients = []
    for size in (10, 3, 1):
        monkeypatch.setattr(training, "parts", lambda m, c, n=size: (c.part(i, i + n) for i in range(0, len(c), n)))
        loss = training.accumulate_gradients(model, contexts, objective, None)
        gradients.append((loss, [p.grad.clone() for p in model.parameters()]))
    for loss, gradient in gradients[1:]:
        assert torch.allclose(loss.double(), gradients[0][0].double(), rtol=1e-6)
        assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-14) for a, b in zip(gradient, gradients[0][1], strict=True))


def test_parts_bound_the_memory_of_a_step():
    model = build_model(ModelSpec("softmax", "controlled", "merged", 1024, 16, 16), (0, 1, 2, 3))
    contexts = sample_contexts(Family("difficult", 16, 64, 2, 0.0), 64, [generator("data", s, 0) for s in range(4)])
    sizes = [len(part) for part in parts(model, contexts)]
    assert sum(sizes) == 64
    assert 4 * max(sizes) * 1024 * 64 * 4 <= 16 * 2**20  # bytes of one array of attention


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_integrated_teacher_is_the_mean_of_sampled_ones(a):
    family = Family("difficult", 4, 12, 2, a)
    objective = Objective(family, 1.0, torch.float64, CPU)
    model = build_model(ModelSpec("softmax", "controlled", "merged", 2, 4, 4), (0,), torch.float64)
    contexts = sample_contexts(family, 1, [generator("data", 0, 0)], dtype=torch.float64)
    teachers = objective.teachers("teacher", 40_000, (0,), 0)
    sampled = objective(model, contexts, teachers).detach()
    integrated = objective(model, contexts, None).detach()
    error = float(sampled.std() / np.sqrt(sampled.numel()))
    assert abs(float(sampled.mean() - integrated.mean())) < 4 * error


def test_models_come_back_from_a_file(tmp_path):
    from inverse_depth.storage import read_dataset, write_dataset

    result = train(tmp_path)
    write_dataset(result, tmp_path / "run.nc")
    stored = read_dataset(tmp_path / "run.nc")
    assert isinstance(stored, xr.Dataset)
    family = Family("difficult", 4, 12, 2, 1.0)
    contexts = sample_contexts(family, 5, [generator("data", s, 0) for s in (0, 1)])
    last = int(stored["step"][-1])
    with torch.no_grad():
        here, there = (load_model(ds, last, CPU).residual(contexts) for ds in (result, stored))
        early = load_model(stored, int(stored["step"][0]), CPU).residual(contexts)
    assert torch.equal(here, there) and not torch.equal(here, early)
    shutil.rmtree(tmp_path)


def test_refuses_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="device is 'cuda'"):
        prepare_device("cuda")
    assert prepare_device("auto").type == "cpu"


def test_a_round_that_makes_the_loss_worse_has_not_converged():
    ends = [{"loss": torch.tensor([1.0, 1.0, 1.0])}, {"loss": torch.tensor([50.0, 0.9995, 1.0005])}]
    assert training._converged(ends, 1e-3).tolist() == [False, True, True]
