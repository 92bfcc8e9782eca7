rule fit:
    input:
        "<results>/cubes/{experiment}.nc",
    output:
        "<results>/fits/{experiment}.csv",
    log:
        "<logs>/fits/{experiment}.log",
    benchmark:
        "<benchmarks>/fits/{experiment}.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=lambda wildcards: STUDY.experiments[wildcards.experiment].fit.model_dump(mode="json"),
        code=code_hash("inverse_depth.fits"),
    message:
        "Fit the loss of {wildcards.experiment} against depth"
    script:
        "../scripts/fit.py"
