"""Compute one set of linear loss floors."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"floor {snakemake.wildcards.floor}"):
    from inverse_depth.config import Floor
    from inverse_depth.storage import write_dataset
    from inverse_depth.theory.floor import floor_dataset

    write_dataset(floor_dataset(Floor(**snakemake.params.settings), seed=0), snakemake.output[0])
