"""The profiles: what they ask of a cluster, and that the page about them names what is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SLURM = yaml.safe_load((ROOT / "slurm/config.yaml").read_text())
LONG_RULES = {"train", "evaluate", "control", "measurement", "floor"}


def requests():
    return [SLURM["default-resources"], *SLURM["set-resources"].values()]


def test_only_long_rules_become_slurm_jobs():
    text = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")])
    rules = re.findall(r"^ *rule *(\w*):\n(.*?)(?=^ *rule|^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(rules) > 12
    assert {name for name, body in rules if "localrule: True" not in body} == LONG_RULES
    assert set(SLURM["set-resources"]) <= LONG_RULES


def test_resources_are_named_in_the_profile_alone():
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        assert "resources:" not in path.read_text()


@pytest.mark.parametrize("name", ["mem_mb", "runtime"])
def test_a_later_attempt_asks_for_more(name):
    amounts = [request[name] for request in requests() if name in request]
    assert len(amounts) >= 2
    for amount in amounts:
        first, second = (eval(amount, {"attempt": attempt}) for attempt in (1, 2))
        assert second > first > 0


def test_every_key_that_the_page_names_is_in_the_profile():
    page, profile = (ROOT / "docs/cluster.md").read_text(), (ROOT / "slurm/config.yaml").read_text()
    named = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert len(named) >= 8
    keys = set(re.findall(r"^ *(?:# )?([\w-]+): ", profile, re.MULTILINE))
    assert set(named) <= keys
    assert {"retries", "keep-going", "slurm-requeue", "slurm-logdir", "slurm-jobname-prefix"} <= keys


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_the_literal_command_plans_the_whole_study(profile):
    command = [sys.executable, "-m", "snakemake", "--profile", profile, "all", "--forceall", "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    in_slurm = sum(int(planned[rule]) for rule in LONG_RULES)
    page = (ROOT / "docs/cluster.md").read_text()
    # `all` is counted too, but does nothing
    assert f"{in_slurm} Slurm jobs" in page and f"{int(planned['total']) - in_slurm - 1} local ones" in page
