"""Make the spectra of one (d, a, b)."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"spectra {snakemake.wildcards.spectrum}"):
    from inverse_depth.spectra import spectrum_dataset
    from inverse_depth.storage import write_dataset

    write_dataset(spectrum_dataset(**snakemake.params.settings), snakemake.output[0])
