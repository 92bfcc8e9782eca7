"""Draw one figure or write one table."""

from pathlib import Path

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    from inverse_depth.artifacts import render

    inputs = {name: Path(path) for name, path in snakemake.input.items()}
    render(snakemake.params.artifact, inputs, [Path(path) for path in snakemake.output])
