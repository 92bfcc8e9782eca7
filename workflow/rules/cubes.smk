rule cube:
    input:
        lambda wildcards: [
            f"<results>/evaluations/{name}/{group}.nc" for name, group in GROUPS if name == wildcards.experiment
        ],
    output:
        "<results>/cubes/{experiment}.nc",
    log:
        "<logs>/cubes/{experiment}.log",
    benchmark:
        "<benchmarks>/cubes/{experiment}.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=lambda wildcards: STUDY.experiment_settings(wildcards.experiment),
        code=code_hash("inverse_depth.cubes"),
    message:
        "Assemble the cube of {wildcards.experiment}"
    script:
        "../scripts/cube.py"
