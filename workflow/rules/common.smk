# The study, and the tables in which rules look their wildcards up. Read again by every job: nothing heavy is imported.
import re

from snakemake.exceptions import WorkflowError

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.config import ConfigError, parse_study, short
from inverse_depth.provenance import code_hash

try:
    STUDY = parse_study(config)
except ConfigError as error:
    raise WorkflowError(str(error)) from None


pathvars:
    results=f"results/{STUDY.study}",
    logs="<results>/logs",
    benchmarks="<results>/benchmarks",


RUNS = {(name, run.id): run for name in STUDY.experiments for run in STUDY.runs(name).values()}

# The runs whose models are evaluated together, on common contexts.
GROUPS = {}
for (_experiment, _run_id), _run in RUNS.items():
    GROUPS.setdefault((_experiment, _run.group), []).append(_run_id)


def control_family(run):
    """The family of data whose control variate serves a run, with its short name; None where none is needed."""
    settings = STUDY.experiments[run.experiment]
    if (settings.attention, settings.task) != ("softmax", "difficult"):
        return None
    d, length = settings.dimension, settings.context_length
    fields = {"task": settings.task, "dimension": d, "context_length": length, "target_size": run.k, "a": run.a}
    return f"{settings.task}_d{d}_P{length}_k{run.k}_a{short(run.a)}", fields


FAMILIES = dict(filter(None, map(control_family, RUNS.values())))

SPECTRA = {
    f"d{d}_a{short(a)}_b{short(b)}": {"dimension": d, "a": a, "b": b}
    for d, a, b in dict.fromkeys((STUDY.experiments[run.experiment].dimension, run.a, run.b) for run in RUNS.values())
}

FILES = [
    "config.yaml",
    "illustration/contexts.nc",
    *(f"spectra/{spectrum}.nc" for spectrum in SPECTRA),
    *(f"cubes/{name}.nc" for name in STUDY.experiments),
    *(f"fits/{name}.csv" for name in STUDY.experiments),
    *(["theory/polynomials.nc"] if STUDY.polynomials() else []),
    *(f"theory/{floor}.nc" for floor in STUDY.theory.floors),
]
SUFFIXES = {"figure": ["pdf", "png"], "table": ["csv", "md", "tex"]}


def group_runs(wildcards):
    """The shards that are evaluated together."""
    runs = GROUPS[wildcards.experiment, wildcards.group]
    return [f"<results>/runs/{wildcards.experiment}/{run}.nc" for run in runs]


def first_run(wildcards):
    """One of the runs that are evaluated together."""
    return RUNS[wildcards.experiment, GROUPS[wildcards.experiment, wildcards.group][0]]


def group_control(wildcards):
    """The control variate of the data on which a group is evaluated, if it has one."""
    family = control_family(first_run(wildcards))
    return f"<results>/controls/{family[0]}.nc" if family else []


def artifact_files(artifact):
    return [f"<results>/{artifact.kind}s/{artifact.name}.{suffix}" for suffix in SUFFIXES[artifact.kind]]


def artifact_modules(artifact):
    """The modules that decide what an artifact's files hold: its function's, and for a table the one that writes it."""
    return [artifact.function.partition(":")[0], *(["inverse_depth.markup"] if artifact.kind == "table" else [])]


def one_of(names):
    return "|".join(sorted({re.escape(name) for name in names}))


# A study need not hold every experiment; its artifacts are those that can be made from what it holds.
TARGETS = [f"<results>/{file}" for file in FILES] + [
    file
    for artifact in ARTIFACTS.values()
    if set(artifact.inputs.values()) <= set(FILES)
    for file in artifact_files(artifact)
]


wildcard_constraints:
    experiment=one_of(STUDY.experiments),
    run=one_of(run for _, run in RUNS),
    group=one_of(group for _, group in GROUPS),
    family=one_of(FAMILIES),
    spectrum=one_of(SPECTRA),
    floor=one_of(STUDY.theory.floors),
