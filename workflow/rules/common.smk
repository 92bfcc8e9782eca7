# The study, and the tables in which rules look their wildcards up. Read again by every job: nothing heavy is imported.
import os
import re
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from inverse_depth.artifacts import ARTIFACTS
from inverse_depth.config import ConfigError, parse_study, read_layer, short
from inverse_depth.outlook import Outlook
from inverse_depth.provenance import code_hash
from inverse_depth.variants import VARIANTS

try:
    for _file in workflow.configfiles:
        read_layer(_file)
    STUDY = parse_study(config)
except ConfigError as error:
    raise WorkflowError(str(error)) from None


pathvars:
    results=f"results/{STUDY.study}",
    logs="<results>/logs",
    benchmarks="<results>/benchmarks",


RUNS = {(name, run.id): run for name in STUDY.experiments for run in STUDY.runs(name).values()}

# The (a, b, k) of which all models are evaluated together, on common contexts, with these models.
GROUPS = {(name, group): points for name in STUDY.experiments for group, points in STUDY.evaluations(name).items()}


def control_family(experiment, a, k):
    """The family of data whose control variate serves a group, with its short name; None where none is needed."""
    settings = STUDY.experiments[experiment]
    if (settings.attention, settings.task) != ("softmax", "difficult"):
        return None
    d, length = settings.dimension, settings.context_length
    fields = {"task": settings.task, "dimension": d, "context_length": length, "target_size": k, "a": a}
    return f"{settings.task}_d{d}_P{length}_k{k}_a{short(a)}", fields


# The families and, for the mean of each one's control variate, the number of contexts.
FAMILIES, CONTROL_CONTEXTS = {}, {}
for _name, _a, _k in {(name, a, k): None for (name, _), points in GROUPS.items() for a, _, k in points}:
    if _family := control_family(_name, _a, _k):
        FAMILIES[_family[0]] = _family[1]
        _contexts = STUDY.control_ratio * STUDY.experiments[_name].evaluation_contexts
        CONTROL_CONTEXTS[_family[0]] = max(_contexts, CONTROL_CONTEXTS.get(_family[0], 0))

SPECTRA = {
    f"d{d}_a{short(a)}_b{short(b)}": {"dimension": d, "a": a, "b": b}
    for d, a, b in dict.fromkeys(
        (STUDY.experiments[name].dimension, a, b) for (name, _), points in GROUPS.items() for a, b, _ in points
    )
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


MEASUREMENTS = STUDY.measurements.model_dump(mode="json", exclude_none=True)
FILES += [f"measurements/{name}.nc" for name in MEASUREMENTS]


def run_file(run):
    return f"<results>/runs/{run.experiment}/{run.id}.nc"


def group_runs(wildcards):
    """The runs that are evaluated together."""
    points = GROUPS[wildcards.experiment, wildcards.group]
    return list(dict.fromkeys(run_file(run) for runs in points.values() for run in runs))


def group_control(wildcards):
    """The control variate of the data on which a group is evaluated, if it has one."""
    a, _, k = next(iter(GROUPS[wildcards.experiment, wildcards.group]))
    family = control_family(wildcards.experiment, a, k)
    return f"<results>/controls/{family[0]}.nc" if family else []


def model_code(experiment):
    """The code of an experiment's model, which a new model of another experiment does not change."""
    settings = STUDY.experiments[experiment]
    return code_hash(VARIANTS[settings.attention][settings.variant].module)


def artifact_files(artifact):
    return [f"<results>/{artifact.kind}s/{artifact.name}.{suffix}" for suffix in SUFFIXES[artifact.kind]]


def artifact_modules(artifact):
    """The modules that decide what an artifact's files hold: its function's, and for a table the one that writes it."""
    return [artifact.function.partition(":")[0], *(["inverse_depth.markup"] if artifact.kind == "table" else [])]


def one_of(names):
    return "|".join(sorted({re.escape(name) for name in names}))


def made_from(files):
    """The files of the artifacts that can be made from given ones."""
    there = set(files)
    made = (artifact for artifact in ARTIFACTS.values() if set(artifact.inputs.values()) <= there)
    return [file for artifact in made for file in artifact_files(artifact)]


def there(wildcards):
    """The files of the study that are there, however they came, and the fits that can be made of its cubes."""
    cubes = {f for f in FILES if Path(f"results/{STUDY.study}/{f}").exists()}
    fits = {f for f in FILES if f.startswith("fits/") and f"cubes/{Path(f).stem}.nc" in cubes}
    return [f"<results>/{file}" for file in FILES if file in cubes | fits]


def drawable(wildcards):
    """The files of the artifacts that can be made of what is there."""
    if not (files := made_from(file.removeprefix("<results>/") for file in there(wildcards))):
        layers = " ".join(name for name in map(os.path.relpath, workflow.configfiles) if name != "config/paper.yaml")
        command = "snakemake all --profile local" + (f" --configfile {layers}" if layers else "")
        # not an error of Snakemake's: it would show where in this file it was raised
        raise SystemExit(f"results/{STUDY.study} holds no cubes to draw from; `{command}` makes them")
    return files


def archived(wildcards):
    """What of a study is archived: all that is there or can be made of it, but spectra, which cubes hold, too."""
    data = [file for file in there(wildcards) if not file.startswith("<results>/spectra/")]
    return list(dict.fromkeys(["<results>/report.html", "<results>/config.yaml", *data, *drawable(wildcards)]))


def points():
    """The files of trained models, and how many points of the cubes each one gives."""
    found = {}
    for group in GROUPS.values():
        for run in (run for runs in group.values() for run in runs):
            file = run_file(run).replace("<results>", f"results/{STUDY.study}")
            found[file] = found.get(file, 0) + len(run.seeds)
    return found


# Only where jobs are planned and started: each of them reads these files again.
if workflow.is_main_process:
    _outlook = Outlook(workflow, STUDY, points())
    logger.addHandler(_outlook)
    logger.addFilter(_outlook.brief)


# A study need not hold every experiment; its artifacts are those that can be made from what it holds.
ARTIFACT_FILES = made_from(FILES)
# The runs are targets too: where only cubes are there, as in a clone that holds the paper's, a study is not yet run.
TARGETS = [run_file(run) for run in RUNS.values()] + [f"<results>/{file}" for file in FILES] + ARTIFACT_FILES


wildcard_constraints:
    experiment=one_of(STUDY.experiments),
    run=one_of(run for _, run in RUNS),
    group=one_of(group for _, group in GROUPS),
    family=one_of(FAMILIES),
    spectrum=one_of(SPECTRA),
    floor=one_of(STUDY.theory.floors),
    measurement=one_of(MEASUREMENTS),
