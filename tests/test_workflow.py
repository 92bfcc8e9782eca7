"""The real workflow at toy size: from spectra to figures once, and what it plans after each kind of change."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.config import load_study
from inverse_depth.storage import read_dataset

ROOT = Path(__file__).parents[1]

TOY = """
study: toy
device: cpu
control_ratio: 4
training:
  toy: {parameters: merged, batch_size: 8, learning_rate: 0.01, warmup: 1, first_round: 2, max_steps: 6, tolerance: 0.5}
  single_stream: {batch_size: 8, warmup: 1, first_round: 2, max_steps: 6, tolerance: 0.5}
experiments:
  linear_easy:
    {training: toy, dimension: 4, width: 4, evaluation_contexts: 256, fit: {min_depth: 1},
     grid: [{depths: [1, 2], spectra: [[2, 1]], seeds: [[0]]}]}
  linear_difficult:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1], spectra: [[0, 0]], target_sizes: [2], seeds: [[0]]}]}
  softmax_easy:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1], spectra: [[0, 0]], seeds: [[0]]}]}
  softmax_difficult:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [1, 2], spectra: [[0, 0]], target_sizes: [2], seeds: [[0, 1]]}]}
  decoupled_values: &one
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [2], spectra: [[0, 0]], target_sizes: [2], seeds: [[0]]}]}
  single_stream: {<<: *one, training: single_stream}
  context_updates:
    {training: toy, dimension: 4, width: 4, context_length: 16, evaluation_contexts: 256,
     grid: [{depths: [2], spectra: [[0, 0]], target_sizes: [2, 16], seeds: [[0]]}]}
  linear_matched: *one
  softmax_large: *one
measurements:
  selection: {depths: [1, 2], contexts: 100}
  context_attention: {contexts: 16}
theory:
  polynomial_depths: [1, 2]
  floors:
    linear_floor: &floor {dimension: 4, context_length: 16, contexts: 256, spectra: [[0, 0]], target_sizes: [2]}
    linear_floor_matched: *floor
"""


class Checkout:
    """A copy of the project that may be edited, with a study of its own."""

    def __init__(self, root):
        self.root = root
        for name in ("Snakefile", "environment.yml", "workflow", "config", "local", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, root / name)
        (root / "config/toy.yaml").write_text(TOY)

    def snakemake(self, *arguments, override=None):
        """Run Snakemake on the toy study, with another layer of configuration over it where one is given."""
        layers = ["config/toy.yaml"]
        if override:
            (self.root / "config/override.yaml").write_text(override)
            layers.append("config/override.yaml")
        command = [sys.executable, "-m", "snakemake", *arguments, "--profile", "local", "--configfile", *layers]
        environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True)

    def plan(self, override=None, target="all"):
        """Return how many jobs of each rule a run would start."""
        done = self.snakemake(target, "--dry-run", override=override)
        assert done.returncode == 0, done.stderr
        table = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\ntotal", done.stdout + done.stderr, re.DOTALL)
        if table is None:
            assert "Nothing to be done" in done.stdout + done.stderr
            return {}
        jobs = {name: int(count) for name, count in (line.split() for line in table.group(1).splitlines())}
        return {name: count for name, count in jobs.items() if name != target}

    def plan_after(self, file, addition):
        """Return the plan after lines were added to a file of the package; they are then taken out again."""
        path = self.root / "src/inverse_depth" / file
        before, status = path.read_text(), path.stat()
        try:
            path.write_text(f"{before}\n{addition}\n")
            return self.plan()
        finally:
            path.write_text(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("project"))
    done = checkout.snakemake("all")
    assert done.returncode == 0, done.stderr
    return checkout


def artifacts(*inputs):
    """Names of the artifacts that read one of these files."""
    return {name: 1 for name, artifact in ARTIFACTS.items() if set(inputs) & set(artifact.inputs.values())}


def test_everything_is_made(checkout):
    results = checkout.root / "results/toy"
    study = load_study(checkout.root / "config/paper.yaml", checkout.root / "config/toy.yaml")
    assert yaml.safe_load((results / "config.yaml").read_text()) == study.model_dump(mode="json")
    for artifact in ARTIFACTS.values():
        for suffix in {"figure": ("pdf", "png"), "table": ("csv", "md", "tex")}[artifact.kind]:
            assert (results / f"{artifact.kind}s/{artifact.name}.{suffix}").stat().st_size > 0
    cube = read_dataset(results / "cubes/softmax_difficult.nc")
    assert {name: cube.sizes[name] for name in ("L", "a", "b", "k", "seed")} == dict(L=2, a=1, b=1, k=1, seed=2)
    assert np.isfinite(cube["loss"]).all()
    assert (cube["steps"] <= 6).all()
    logs = list((results / "logs").rglob("*.log"))
    assert len(logs) > 20
    assert not any("failed" in log.read_text() for log in logs)
    assert not list(results.rglob(".*tmp*"))
    assert not list((results / "checkpoints").rglob("*.pt"))


def test_a_second_run_does_nothing(checkout):
    assert checkout.plan() == {}
    done = checkout.snakemake("all")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_new_depth_trains_only_its_own_points(checkout):
    grid = "{experiments: {softmax_difficult: {grid: [{depths: [1, 2, 4], spectra: [[0, 0]], target_sizes: [2], "
    downstream = artifacts("cubes/softmax_difficult.nc", "fits/softmax_difficult.csv")
    expected = {"train": 1, "evaluate": 1, "cube": 1, "fit": 1, "study_config": 1, **downstream}
    assert checkout.plan(grid + "seeds: [[0, 1]]}]}}}") == expected
    seeds = checkout.plan(grid.replace(", 4]", "]") + "seeds: [[0, 1], [2]]}]}}}")
    assert seeds == expected | {"train": 2, "measurement": 1, **artifacts("measurements/selection.nc")}


def test_a_new_spectrum_trains_only_its_own_points(checkout):
    grid = "{experiments: {softmax_difficult: {grid: [{depths: [1, 2], spectra: [[0, 0], [1, 0]], target_sizes: [2], "
    downstream = artifacts("cubes/softmax_difficult.nc", "fits/softmax_difficult.csv")
    new = {"spectra": 1, "train": 2, "control": 1, "evaluate": 1}
    assert checkout.plan(grid + "seeds: [[0, 1]]}]}}}") == new | {"cube": 1, "fit": 1, "study_config": 1, **downstream}


def test_settings_that_decide_no_number_run_nothing_again(checkout):
    assert checkout.plan("device: auto") == {"study_config": 1}
    fitted = artifacts("fits/softmax_difficult.csv")
    fit = "{experiments: {softmax_difficult: {fit: {min_depth: 2}}}}"
    assert checkout.plan(fit) == {"study_config": 1, "fit": 1, **fitted}


def test_settings_of_training_train_again(checkout):
    plan = checkout.plan("{training: {toy: {learning_rate: 0.02}}}")
    assert plan["train"] == 11  # all but the single stream's, which has a recipe of its own
    assert "control" not in plan


def test_an_edited_figure_trains_nothing(checkout):
    figures = {name: 1 for name, a in ARTIFACTS.items() if a.function.startswith("inverse_depth.figures.difficult:")}
    figures |= {"depth_range_exponents": 1, "fig3": 1, "fig4": 1}  # share its lists of spectra
    assert checkout.plan_after("figures/difficult.py", "EDITED = True") == figures
    assert checkout.plan_after("figures/difficult.py", "# a comment") == {}
    style = checkout.plan_after("figures/style.mplstyle", "# edited")
    assert style == {name: 1 for name, artifact in ARTIFACTS.items() if artifact.kind == "figure"}


@pytest.mark.parametrize(
    ("file", "trained", "evaluated"),
    [
        ("training.py", 12, 10),
        ("contexts.py", 12, 10),
        ("models/parameters.py", 12, 10),
        # a model's own code trains its own points only
        ("models/linear.py", 4, 3),
        ("models/softmax.py", 7, 6),  # context updates are made of the same mixtures
        ("models/single_stream.py", 1, 1),
        ("models/context_updates.py", 2, 2),
        ("variants.py", 0, 0),
    ],
)
def test_edited_code_of_models_and_training_trains_again(checkout, file, trained, evaluated):
    plan = checkout.plan_after(file, "EDITED = True")
    assert (plan.get("train", 0), plan.get("evaluate", 0)) == (trained, evaluated)


def test_edited_code_of_evaluation_evaluates_again_and_trains_nothing(checkout):
    plan = checkout.plan_after("evaluation.py", "EDITED = True")
    assert plan["evaluate"] == 10
    assert "train" not in plan


def test_an_impossible_study_is_refused_in_one_message(checkout):
    done = checkout.snakemake("all", override="{experiments: {softmax_easy: {width: 3, depht: 4}}}")
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert "experiments.softmax_easy.depht: unknown key" in output
    assert "Traceback" not in output


def test_a_damaged_shard_is_named_and_the_failure_told_in_words(checkout, tmp_path):
    damaged = checkout.root / "results/toy/evaluations/linear_easy/a2_b1_k1.nc"
    content = damaged.read_bytes()
    try:
        damaged.write_bytes(content[: len(content) // 2])
        done = checkout.snakemake("results/toy/cubes/linear_easy.nc")
    finally:
        damaged.write_bytes(content)
    assert done.returncode == 1
    for text in (done.stdout + done.stderr, (checkout.root / "results/toy/logs/cubes/linear_easy.log").read_text()):
        assert "cube linear_easy failed: results/toy/evaluations/linear_easy/a2_b1_k1.nc: damaged" in text
        assert "give the same command again" in text
    assert checkout.snakemake("all").returncode == 0
    assert checkout.plan() == {}


def test_cubes_alone_give_the_figures_but_no_study(checkout, tmp_path):
    """As in a clone that holds the cubes of the paper: figures without training, and a study that is trained anew."""
    clone = Checkout(tmp_path)
    shutil.copytree(checkout.root / "results/toy", tmp_path / "results/toy")
    for name in ("runs", "evaluations", "controls", "spectra", "figures"):
        shutil.rmtree(tmp_path / "results/toy" / name)
    jobs = clone.plan(target="figures")
    figures = {name for name, artifact in ARTIFACTS.items() if artifact.kind == "figure"}
    assert figures <= set(jobs) <= set(ARTIFACTS) | {"fit"}
    assert clone.plan()["train"] == 12
    (tmp_path / "results/toy/cubes/softmax_easy.nc").unlink()
    assert "fig4" not in clone.plan(target="figures") and "train" not in clone.plan(target="figures")
    shutil.rmtree(tmp_path / "results/toy")
    empty = clone.snakemake("figures", "--dry-run")
    assert empty.returncode == 1 and "results/toy holds no cubes to draw from" in empty.stdout + empty.stderr


def test_a_target_that_no_study_holds_is_refused(checkout):
    done = checkout.snakemake("results/toy/cubes/absent.nc")
    assert done.returncode == 1
    assert "results/toy/cubes/absent.nc" in done.stdout + done.stderr


def test_every_artifact_has_a_rule_of_its_own():
    done = subprocess.run([sys.executable, "-m", "snakemake", "--list-rules"], cwd=ROOT, capture_output=True, text=True)
    assert set(ARTIFACTS) <= set(done.stdout.split())


def test_the_workflow_is_lint_free_and_formatted():
    for command in (["snakemake", "--lint"], ["snakefmt", "--check", "Snakefile", "workflow"]):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_scripts_only_unpack():
    scripts = list((ROOT / "workflow/scripts").glob("*.py"))
    assert len(scripts) >= 10
    assert all(len(script.read_text().splitlines()) <= 25 for script in scripts)
