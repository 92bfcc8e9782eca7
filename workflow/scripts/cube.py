"""Assemble the cube of one experiment."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"cube {snakemake.wildcards.experiment}"):
    from inverse_depth.cubes import build_cube
    from inverse_depth.storage import read_dataset, write_dataset

    evaluations = [read_dataset(path) for path in snakemake.input.evaluations]
    runs = [read_dataset(path) for path in snakemake.input.runs]
    write_dataset(
        build_cube(evaluations, runs, snakemake.wildcards.experiment, snakemake.params.settings), snakemake.output[0]
    )
