"""Assemble the cube of one experiment."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"cube {snakemake.wildcards.experiment}"):
    from inverse_depth.cubes import build_cube
    from inverse_depth.storage import read_dataset, write_dataset

    experiment, settings = snakemake.wildcards.experiment, snakemake.params.settings
    cube = build_cube([read_dataset(path) for path in snakemake.input], experiment, settings)
    write_dataset(cube, snakemake.output[0])
