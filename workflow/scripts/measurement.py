"""Make one measurement on trained models."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"measurement {snakemake.wildcards.measurement}"):
    from inverse_depth import measurements
    from inverse_depth.config import parse_study
    from inverse_depth.evaluation import read_runs
    from inverse_depth.provenance import attributes
    from inverse_depth.storage import write_dataset

    name, settings = snakemake.wildcards.measurement, snakemake.params.settings
    study = parse_study(snakemake.config)
    section = getattr(study.measurements, name)
    runs = read_runs(snakemake.input, study.measured_runs(section), study)
    measure = getattr(measurements, f"{name}_dataset")
    dataset = measure(runs, study.experiments[section.experiment], section, device=study.device)
    write_dataset(dataset.assign_attrs(attributes(f"Measurement {name}", settings)), snakemake.output[0])
