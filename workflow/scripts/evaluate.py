"""Evaluate the models of one experiment and (a, b, k), and those b that they also serve, on common contexts."""

from pathlib import Path

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"evaluate {snakemake.wildcards.experiment} {snakemake.wildcards.group}"):
    from inverse_depth.config import parse_study
    from inverse_depth.evaluation import evaluate, read_runs
    from inverse_depth.provenance import attributes
    from inverse_depth.storage import read_dataset, write_dataset

    study, settings = parse_study(snakemake.config), snakemake.params.settings
    experiment = study.experiments[snakemake.wildcards.experiment]
    points = study.evaluations(snakemake.wildcards.experiment)[snakemake.wildcards.group]
    wanted = list({run.id: run for runs in points.values() for run in runs}.values())
    runs = read_runs(snakemake.input.runs, wanted, study)
    control = read_dataset(snakemake.input.control) if snakemake.input.control else None
    a, k, depths = settings["a"], settings["k"], dict(settings["points"])
    dataset = evaluate(runs, control, experiment, a=a, b=depths, k=k, device=study.device)
    title = f"Evaluation of {snakemake.wildcards.experiment} at {snakemake.wildcards.group}"
    write_dataset(dataset.assign_attrs(attributes(title, settings)), snakemake.output[0])
    for run in wanted:
        Path(f"results/{study.study}/checkpoints/{run.experiment}/{run.id}.pt").unlink(missing_ok=True)
