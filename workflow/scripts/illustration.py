"""Sample the contexts that the drawn figures show."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    from inverse_depth.illustration import illustration_dataset
    from inverse_depth.storage import write_dataset

    write_dataset(illustration_dataset(**snakemake.params.settings), snakemake.output[0])
