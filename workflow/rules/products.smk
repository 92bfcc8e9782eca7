# What a study is handed on as: a page to read, and an archive to publish. Made of what is there: nothing is trained.
rule report:
    input:
        drawable,
        there,
    output:
        "<results>/report.html",
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report/report.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings=STUDY.model_dump(mode="json"),
        code=code_hash("inverse_depth.report"),
    message:
        "Write the study's page, {output}"
    script:
        "../scripts/report.py"


rule archive:
    input:
        results=archived,
        citation="CITATION.cff",
        rest=["LICENSE", "requirements.lock", "environment.yml"],
    output:
        f"<results>/inverse-depth-{STUDY.study}.zip",
    log:
        "<logs>/archive.log",
    benchmark:
        "<benchmarks>/archive/archive.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    params:
        code=code_hash("inverse_depth.archive"),
    message:
        "Archive the study as {output}"
    script:
        "../scripts/archive.py"
