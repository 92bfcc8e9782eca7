"""Every command that README.md and docs/ give is run here, or planned by a dry run of what it would do."""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from checkout import ROOT

from inverse_depth.config import load_study

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = (
    "make",
    "snakemake",
    "python",
    "pip",
    "conda",
    "head",
    "tail",
    "find",
    "squeue",
    "sacct",
    "sacctmgr",
    "sinfo",
)

# They ask a real cluster about itself: nothing here has one to ask.
OF_A_CLUSTER = {
    "sinfo -s",
    "sacctmgr show associations user=$USER",
    "squeue --me",
    "squeue --name",
    "sacct --name",
}


def fenced(page):
    """Return the lines of a page's blocks of commands: those with no language, or with sh."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "\n".join(text for language, text in blocks if language in ("", "sh")).splitlines()
    return [re.sub(r"\s{2,}#.*", "", line).strip() for line in lines if line.strip()]


def documented():
    commands = {}
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        inline = [code for code in re.findall(r"`([^`\n]+)`", text) if code.split()[0] in PROGRAMS and " " in code]
        commands |= dict.fromkeys([*fenced(page), *inline])
    return list(commands)


COMMANDS = documented()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A checkout in which the quick and the paper's study have cubes, of which one is the committed one."""
    root = tmp_path_factory.mktemp("project")
    for path in ROOT.iterdir():
        if path.name not in ("config", "results", ".git", ".snakemake", ".venv"):
            (root / path.name).symlink_to(path)
    shutil.copytree(ROOT / "config", root / "config")
    recipe = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
    (root / "config/mine.yaml").write_text(recipe[1])
    shutil.copy(ROOT / "config/quick.yaml", root / "theirs.yaml")
    for name in ("paper", "quick"):
        study = load_study(root / "config/paper.yaml", *([root / "config/quick.yaml"] if name == "quick" else []))
        (root / f"results/{name}/cubes").mkdir(parents=True)
        for experiment in study.experiments:
            (root / f"results/{name}/cubes/{experiment}.nc").touch()
    committed = "results/paper/cubes/softmax_difficult.nc"
    for copy in (committed, "cube.nc"):
        shutil.copy(ROOT / committed, root / copy)
    return root


def run(project, command):
    # what a `make test` around this test has set is none of the command's
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment = inherited | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, shell=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@functools.cache
def plan(project, command):
    """Run a command of Snakemake's as a dry run; its graph and its lock need none."""
    graph, _, after = command.partition(" | ")
    dry = "" if re.search(r"--(dry-run|unlock|rulegraph)\b", graph) else " --dry-run --quiet"
    program = f"{shlex.quote(sys.executable)} -m {graph}{dry}"
    found = run(project, f"{program} 2>errors | {sys.executable} {after.split(maxsplit=1)[1]}" if after else program)
    assert found.strip() or "--unlock" in command


def steps(project, command):
    """Return what a target of the Makefile would run, with its environment taken as made."""
    lines = run(project, f"{command} --dry-run --old-file .venv/.ready").splitlines()
    return [line.removeprefix("OMP_NUM_THREADS=1 ").removeprefix(".venv/bin/") for line in lines]


def measures(project, command):
    """Check that a benchmark, which takes minutes, knows the options that are given."""
    words = command.split()
    usage = run(project, f"{sys.executable} {words[1]} --help")
    assert all(word in usage for word in words[2:] if word.startswith("--"))


def check(project, command):
    """Run or plan a command; fail for one that this module does not know how to."""
    words = command.split()
    setup = run(project, "make --dry-run .venv/.ready")
    match words[0]:
        case "snakemake":
            plan(project, command.removesuffix(" --dry-run") if "--dry-run" in words else command)
        case "make":
            for step in steps(project, command):
                if step.startswith("snakemake "):
                    plan(project, step)
                elif step.startswith("python -m "):
                    assert importlib.util.find_spec(step.split()[2])
                elif step.startswith("python benchmarks/"):
                    measures(project, step)
                else:  # tests and linters, which CI runs by this very command
                    assert step.split()[0] in ("pytest", "ruff", "snakefmt", "mypy"), step
                    assert command in ("make test", "make test-slurm", "make lint")
        case "pip" | "conda":  # installing needs a network; `make` runs the like
            files = [word for word in words if "." in word]
            assert files and all((project / file).exists() for file in files)
            assert "pip install -r requirements.lock" in setup and "pip install --no-deps" in setup
        case ".venv/bin/python":
            measures(project, command)
        case "python":
            run(project, f"{sys.executable} {command.partition(' ')[2]}")
        case "head" | "tail" | "find":
            assert run(project, command) or words[0] == "find"
        case ".":
            assert f"-m venv --clear {words[1].removesuffix('/bin/activate')}\n" in setup
        case _:
            assert command in OF_A_CLUSTER, f"no test runs or plans `{command}`"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_documentation_works(project, command):
    check(project, command)


def test_a_command_that_nothing_covers_fails(project):
    for command in ("make absent", "snakemake --profile local absent", "rm -rf results", "python examples/absent.py"):
        with pytest.raises(AssertionError):
            check(project, command)


def test_commands_are_found():
    assert {"make quick", "snakemake --profile slurm all", "squeue --me", ". .venv/bin/activate"} <= set(COMMANDS)
    assert set(COMMANDS) >= OF_A_CLUSTER


def test_the_python_of_the_readme_runs(project):
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (selection,) = re.findall(r"`(cube\.sel\([^`]*\))`", (ROOT / "README.md").read_text())
    code += f"\nassert {selection}['a'] == 0.25\n"
    (project / "readme.py").write_text(code)
    *numbers, determined = run(project, f"{sys.executable} readme.py").split()
    *printed, claim = re.search(r"# (.*)", code)[1].split()
    assert [float(number) for number in numbers] == pytest.approx([float(number) for number in printed], abs=1e-3)
    assert determined == claim == "True"


def test_the_diagram_is_that_of_the_rules(project):
    drawn = re.search(r"^```mermaid\n(.*?)\n```$", (ROOT / "docs/workflow.md").read_text(), re.MULTILINE | re.DOTALL)
    (command,) = [one for one in COMMANDS if "docs/diagram.py" in one]
    graph, _, after = command.partition(" | ")
    found = run(project, f"{sys.executable} -m {graph} 2>errors | {sys.executable} {after.removeprefix('python ')}")
    assert found.strip() == drawn[1]
