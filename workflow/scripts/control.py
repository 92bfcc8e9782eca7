"""Measure the mean of the control variate of one family of data."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"control {snakemake.wildcards.family}"):
    from inverse_depth.contexts import Family
    from inverse_depth.evaluation import control_dataset
    from inverse_depth.provenance import attributes
    from inverse_depth.storage import write_dataset

    settings, contexts = snakemake.params.settings, snakemake.params.contexts
    dataset = control_dataset(Family(**settings), contexts, device=snakemake.config["device"])
    title = f"Control variate {snakemake.wildcards.family}"
    write_dataset(dataset.assign_attrs(attributes(title, {**settings, "contexts": contexts})), snakemake.output[0])
