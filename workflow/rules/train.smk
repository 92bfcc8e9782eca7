rule train:
    output:
        "<results>/runs/{experiment}/{run}.nc",
    log:
        "<logs>/train/{experiment}/{run}.log",
    benchmark:
        "<benchmarks>/train/{experiment}/{run}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=lambda wildcards: STUDY.training_settings(RUNS[wildcards.experiment, wildcards.run]),
        code=lambda wildcards: [code_hash("inverse_depth.training"), model_code(wildcards.experiment)],
    message:
        "Train {wildcards.experiment} {wildcards.run}; follow it in {log}"
    script:
        "../scripts/train.py"
