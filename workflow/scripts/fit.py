"""Fit the loss of one experiment against depth."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"fit {snakemake.wildcards.experiment}"):
    from inverse_depth.config import Fit
    from inverse_depth.cubes import open_cube
    from inverse_depth.fits import fit_cube
    from inverse_depth.storage import write_frame

    write_frame(fit_cube(open_cube(snakemake.input[0]), Fit(**snakemake.params.settings)), snakemake.output[0])
