rule control:
    output:
        "<results>/controls/{family}.nc",
    log:
        "<logs>/control/{family}.log",
    benchmark:
        "<benchmarks>/control/{family}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=lambda wildcards: FAMILIES[wildcards.family],
        contexts=lambda wildcards: CONTROL_CONTEXTS[wildcards.family],
        code=code_hash("inverse_depth.evaluation"),
    message:
        "Mean of the control variate of {wildcards.family}"
    script:
        "../scripts/control.py"


rule evaluate:
    input:
        runs=group_runs,
        control=group_control,
    output:
        "<results>/evaluations/{experiment}/{group}.nc",
    log:
        "<logs>/evaluate/{experiment}/{group}.log",
    benchmark:
        "<benchmarks>/evaluate/{experiment}/{group}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=lambda wildcards: STUDY.evaluation_settings(wildcards.experiment, wildcards.group),
        models=lambda wildcards: STUDY.model_settings(wildcards.experiment),
        code=lambda wildcards: [code_hash("inverse_depth.evaluation"), model_code(wildcards.experiment)],
    message:
        "Evaluate {wildcards.experiment} {wildcards.group} on {params.settings[evaluation_contexts]} common contexts"
    script:
        "../scripts/evaluate.py"
