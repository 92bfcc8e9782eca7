"""The real workflow at toy size: from spectra to figures once, and what it plans after each kind of change."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from checkout import ROOT, Checkout

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.config import load_study
from inverse_depth.storage import read_dataset


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("project"))
    done = checkout.snakemake("all")
    assert done.returncode == 0, done.stderr
    checkout.said = done.stdout + done.stderr
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


def test_a_run_says_what_it_will_do_and_how_far_the_study_is(checkout):
    assert "\nThe study toy: 0 of 14 points are trained. To run:\n" in checkout.said
    assert re.search(
        r"^ +12 train \(.*\b2 softmax_difficult\b.*\): not made yet; time not known yet$", checkout.said, re.M
    )
    trained = re.findall(r"^The study toy: (\d+) of 14 points trained; left: .+$", checkout.said, re.M)
    assert len(trained) > 50
    counts = [int(count) for count in trained]
    assert counts == sorted(counts) and counts[-1] == 14
    grid = "{experiments: {softmax_difficult: {grid: [{depths: [1, 2, 4], spectra: [[0, 0]], target_sizes: [2], "
    done = checkout.snakemake("all", "--dry-run", "--quiet", override=grid + "seeds: [[0, 1]]}]}}}")
    said = done.stdout + done.stderr
    assert said.count("The study toy: 14 of 16 points are trained. To run:") == 1
    assert said.count("points are trained") == 1
    assert re.search(r"^ +1 train \(softmax_difficult\): not made yet; about \d+ s of work$", said, re.M)
    assert re.search(r"^ +1 cube: what it is made from will change; about \d+ s of work$", said, re.M)
    assert re.search(r"^In all about \d+ s with \d+ at a time\.$", said, re.M)


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
    said = empty.stdout + empty.stderr
    assert empty.returncode == 1 and "Traceback" not in said
    make = "`snakemake all --profile local --configfile config/toy.yaml` makes them"
    assert f"results/toy holds no cubes to draw from; {make}" in said


def test_the_page_and_the_archive_are_made_of_what_is_there(checkout):
    """They train nothing, hold every artifact, and the archive is sound."""
    pytest.importorskip("rocrate")
    assert checkout.plan(target="archive") == {"report": 1}
    done = checkout.snakemake("archive")
    assert done.returncode == 0, done.stderr
    page = (checkout.root / "results/toy/report.html").read_text()
    assert all(f'id="{name}"' in page for name in ARTIFACTS)
    command = [sys.executable, "-m", "inverse_depth.verify", checkout.root / "results/toy/inverse-depth-toy.zip"]
    environment = os.environ | {"PYTHONPATH": str(checkout.root / "src")}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("equal data") == len(ARTIFACTS)
    assert checkout.plan() == {} == checkout.plan(target="archive")


def test_cubes_follow_the_climate_and_forecast_conventions(checkout, tmp_path):
    runner = pytest.importorskip("compliance_checker.runner")
    runner.CheckSuite.load_all_available_checkers()
    for cube in sorted((checkout.root / "results/toy/cubes").glob("*.nc")):
        arguments = (str(cube), ["cf:1.11"], 0, "normal")
        found = runner.ComplianceChecker.run_checker(*arguments, output_filename=str(tmp_path / "found.txt"))
        assert found == (True, False), (tmp_path / "found.txt").read_text()


def test_the_report_of_snakemake_has_every_artifact(checkout):
    done = checkout.snakemake("all", "--report", "report.html")
    assert done.returncode == 0, done.stderr
    page = (checkout.root / "report.html").read_text()
    for artifact in ARTIFACTS.values():
        assert artifact.title in page and f"{artifact.name}." in page
    assert all(f'"{category}"' in page for category in ("Figures", "Tables"))


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
