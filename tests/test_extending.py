"""The recipes of docs/extending.md, followed to the letter."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inverse_depth.config import ConfigError, load_study

ROOT = Path(__file__).parents[1]
STUDIES = (ROOT / "config/paper.yaml", ROOT / "config/quick.yaml")
SECTIONS = {
    part.partition("\n")[0]: part
    for part in re.split(r"^## ", (ROOT / "docs/extending.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}
VARIANT = "A model variant"


def blocks(section, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTIONS[section], re.DOTALL | re.MULTILINE)


def promised(section):
    (count,) = re.findall(r"[Tt]his\s+trains\s+(\d+)\s+new\s+jobs", SECTIONS[section])
    return int(count)


def jobs(study):
    return {run: study.training_settings(run) for name in study.experiments for run in study.runs(name).values()}


@pytest.mark.parametrize("section", [name for name in SECTIONS if name != VARIANT])
def test_a_recipe_trains_what_it_says_and_nothing_again(section, tmp_path):
    (text,) = blocks(section, "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    before, after = jobs(load_study(*STUDIES)), jobs(load_study(*STUDIES, tmp_path / "mine.yaml"))
    assert len(after) - len(before) == promised(section) > 0
    assert {run: after.get(run) for run in before} == before


def test_the_document_has_a_recipe_for_everything():
    assert list(SECTIONS) == ["A spectrum", "A depth", "A seed", "A task size", "An experiment", VARIANT]


def test_the_commands_of_the_document_plan_the_new_jobs(tmp_path):
    """With the spectrum of the document, and nothing trained before."""
    commands = re.search(r"```sh\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)[1].splitlines()
    for name in ("Snakefile", "environment.yml", "workflow", "config", "local", "src"):
        (tmp_path / name).symlink_to(ROOT / name) if name != "config" else shutil.copytree(ROOT / name, tmp_path / name)
    (text,) = blocks("A spectrum", "yaml")
    (tmp_path / "config/mine.yaml").write_text(text)
    # what a `make test` around this test has set is none of the command's
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    targets = [shlex.split(line)[1] for line in commands]
    assert (
        targets == ["plan", "study", "report", "archive"] and len({line.split(maxsplit=2)[2] for line in commands}) == 1
    )
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    dry = ["--dry-run", "--old-file", ".venv/.ready"]
    step = subprocess.run([*shlex.split(commands[0]), *dry], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert "config/quick.yaml config/mine.yaml --dry-run" in step.stdout, step.stderr
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", *step.stdout.removeprefix(".venv/bin/").split(), "rules"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned = re.search(r"^train +(\d+)$", done.stdout + done.stderr, re.MULTILINE)
    assert int(planned[1]) == len(jobs(load_study(*STUDIES))) + promised("A spectrum")


def test_the_variant_of_the_document_trains(tmp_path):
    module, entry = blocks(VARIANT, "python")
    (text,) = blocks(VARIANT, "yaml")
    with pytest.raises(ConfigError, match="variant is 'shared_matrix'"):  # the name is the document's own
        (tmp_path / "mine.yaml").write_text(text)
        load_study(*STUDIES, tmp_path / "mine.yaml")

    package = shutil.copytree(ROOT / "src/inverse_depth", tmp_path / "src/inverse_depth")
    (path,) = re.findall(r"`src/inverse_depth/(models/\w+\.py)`:\n", SECTIONS[VARIANT])
    (package / path).write_text(module)
    variants = package / "variants.py"
    anchor = '    "softmax": {\n'
    assert variants.read_text().count(anchor) == 1
    variants.write_text(variants.read_text().replace(anchor, anchor + entry))
    short = "training: {softmax: {batch_size: 8, warmup: 1, first_round: 4, max_steps: 12, tolerance: 0.5}}\n"
    (tmp_path / "short.yaml").write_text(short)
    code = """
import json, sys
from pathlib import Path
from inverse_depth.config import load_study
from inverse_depth.training import train_run
study = load_study(*sys.argv[1:])
experiment = study.experiments["shared_matrix"]
runs = study.runs("shared_matrix").values()
trained = {}
for run in runs:
    data = train_run(experiment, study.training["softmax"], run, checkpoint=Path("run.pt"), log=lambda _: None)
    trained[run.depth] = data["validation_loss"].values.tolist()
    assert data["weights_matrix"].shape[2:] == (1, 16, 16), data["weights_matrix"].shape
print(json.dumps(trained))
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    layers = [*STUDIES, tmp_path / "mine.yaml", tmp_path / "short.yaml"]
    command = [sys.executable, "-c", code, *layers]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout)
    assert len(losses) == promised(VARIANT)
    assert all(0 < loss < 100 for seeds in losses.values() for rounds in seeds for loss in rounds)
