"""Evaluate the models of one experiment and (a, b, k), of all depths and seeds, on common contexts."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"evaluate {snakemake.wildcards.experiment} {snakemake.wildcards.group}"):
    from inverse_depth.config import parse_study
    from inverse_depth.evaluation import evaluate
    from inverse_depth.provenance import attributes
    from inverse_depth.storage import read_dataset, write_dataset

    experiment = parse_study(snakemake.config).experiments[snakemake.wildcards.experiment]
    runs = [read_dataset(path) for path in snakemake.input.runs]
    control = read_dataset(snakemake.input.control) if snakemake.input.control else None
    settings = snakemake.params.settings
    point = {name: settings[name] for name in ("a", "b", "k")}
    dataset = evaluate(runs, control, experiment, **point, device=snakemake.config["device"])
    title = f"Evaluation of {snakemake.wildcards.experiment} at {snakemake.wildcards.group}"
    write_dataset(dataset.assign_attrs(attributes(title, settings)), snakemake.output[0])
