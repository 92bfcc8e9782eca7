rule polynomials:
    output:
        "<results>/theory/polynomials.nc",
    log:
        "<logs>/theory/polynomials.log",
    benchmark:
        "<benchmarks>/theory/polynomials.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=STUDY.polynomials(),
        code=code_hash("inverse_depth.theory.polynomials"),
    message:
        "Polynomial references at d = {params.settings[dimension]}"
    script:
        "../scripts/polynomials.py"


rule floor:
    output:
        "<results>/theory/{floor}.nc",
    log:
        "<logs>/theory/{floor}.log",
    benchmark:
        "<benchmarks>/theory/{floor}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=lambda wildcards: STUDY.theory.floors[wildcards.floor].model_dump(mode="json"),
        code=code_hash("inverse_depth.theory.floor"),
    message:
        "Linear loss floors {wildcards.floor}: d = {params.settings[dimension]}, P = {params.settings[context_length]}"
    script:
        "../scripts/floor.py"
