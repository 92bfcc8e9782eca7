rule study_config:
    output:
        "<results>/config.yaml",
    log:
        "<logs>/config.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=STUDY.model_dump(mode="json"),
    message:
        "Write the study's whole configuration"
    script:
        "../scripts/study_config.py"


rule spectra:
    output:
        "<results>/spectra/{spectrum}.nc",
    log:
        "<logs>/spectra/{spectrum}.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=lambda wildcards: SPECTRA[wildcards.spectrum],
        code=code_hash("inverse_depth.spectra"),
    message:
        "Spectra {wildcards.spectrum}"
    script:
        "../scripts/spectra.py"
