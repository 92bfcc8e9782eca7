rule measurement:
    input:
        lambda wildcards: [
            run_file(run) for run in STUDY.measured_runs(getattr(STUDY.measurements, wildcards.measurement))
        ],
    output:
        "<results>/measurements/{measurement}.nc",
    log:
        "<logs>/measurements/{measurement}.log",
    benchmark:
        "<benchmarks>/measurements/{measurement}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=lambda wildcards: MEASUREMENTS[wildcards.measurement],
        models=lambda wildcards: STUDY.model_settings(MEASUREMENTS[wildcards.measurement]["experiment"]),
        code=lambda wildcards: [
            code_hash("inverse_depth.measurements"),
            model_code(MEASUREMENTS[wildcards.measurement]["experiment"]),
        ],
    message:
        "Measure {wildcards.measurement}"
    script:
        "../scripts/measurement.py"
