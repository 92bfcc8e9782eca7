"""Make one measurement on trained models."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"measurement {snakemake.wildcards.measurement}"):
    from inverse_depth import measurements
    from inverse_depth.config import parse_study
    from inverse_depth.provenance import attributes
    from inverse_depth.storage import read_dataset, write_dataset

    name, settings = snakemake.wildcards.measurement, snakemake.params.settings
    study = parse_study(snakemake.config)
    runs = [read_dataset(path) for path in snakemake.input]
    dataset = getattr(measurements, f"{name}_dataset")(
        runs, study.experiments[settings["experiment"]], getattr(study.measurements, name), device=study.device
    )
    write_dataset(dataset.assign_attrs(attributes(f"Measurement {name}", settings)), snakemake.output[0])
