"""Compute the polynomial references."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    from inverse_depth.storage import write_dataset
    from inverse_depth.theory.polynomials import polynomial_dataset

    write_dataset(polynomial_dataset(**snakemake.params.settings), snakemake.output[0])
