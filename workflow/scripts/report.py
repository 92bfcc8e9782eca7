"""Write the page of the study."""

from pathlib import Path

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], snakemake.rule):
    from inverse_depth.config import parse_study
    from inverse_depth.report import study_report
    from inverse_depth.storage import write_text

    path = Path(snakemake.output[0])
    write_text(study_report(path.parent, parse_study(snakemake.config)), path)
