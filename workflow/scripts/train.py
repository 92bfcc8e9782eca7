"""Train one run: the seeds of one group at one point."""

from pathlib import Path

from inverse_depth.joblog import job_log

with job_log(snakemake.log[0], f"train {snakemake.wildcards.experiment} {snakemake.wildcards.run}"):
    from inverse_depth.config import parse_study
    from inverse_depth.storage import write_dataset
    from inverse_depth.training import train_run

    study = parse_study(snakemake.config)
    experiment = study.experiments[snakemake.wildcards.experiment]
    run = study.runs(snakemake.wildcards.experiment)[snakemake.wildcards.run]
    # no declared output, since Snakemake deletes those when a job fails; it stays until the run has been evaluated, for
    # where Snakemake dies before it has noted the run as finished, it makes it again, from here in an instant
    checkpoint = Path(f"results/{study.study}/checkpoints/{run.experiment}/{run.id}.pt")
    recipe = study.training[experiment.training]
    dataset = train_run(experiment, recipe, run, checkpoint=checkpoint, device=study.device, log=print)
    write_dataset(dataset, snakemake.output[0])
