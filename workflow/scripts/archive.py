"""Write the archive of the study."""

from pathlib import Path

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    from inverse_depth.archive import write_archive

    path = Path(snakemake.output[0])
    files = [Path(file) for file in snakemake.input.results]
    write_archive(path.parent, files, Path(snakemake.input.citation).parent, path)
