"""Write the configuration that the study's files were merged to."""

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    import yaml

    from inverse_depth.storage import write_text

    write_text(yaml.safe_dump(snakemake.params.settings, sort_keys=False), snakemake.output[0])
