"""The files that describe the software agree with each other."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import inverse_depth

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch"}


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def bounds(requirements):
    return {plain(r.name): str(r.specifier) for r in map(Requirement, requirements)}


def locked():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {plain(r.name): r.specifier for r in (Requirement(line) for line in lines if not line.startswith("#"))}


def test_conda_and_pip_have_the_same_bounds():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    expected = bounds(PROJECT["dependencies"]) | {"python": PROJECT["requires-python"]}
    expected = {CONDA_NAMES.get(name, name): bound for name, bound in expected.items()}
    assert bounds(environment["dependencies"]) == expected


def test_the_lock_pins_every_dependency_within_its_bounds():
    pins = locked()
    assert all(re.fullmatch(r"==[\w.]+", str(pin)) for pin in pins.values())
    required = [*PROJECT["dependencies"], *(r for group in PROJECT["optional-dependencies"].values() for r in group)]
    for requirement in map(Requirement, required):
        pin = str(pins[plain(requirement.name)]).removeprefix("==")
        assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == inverse_depth.__version__
