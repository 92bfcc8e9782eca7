rule illustration:
    output:
        "<results>/illustration/contexts.nc",
    log:
        "<logs>/illustration.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        settings={"seed": 19},
        code=code_hash("inverse_depth.illustration"),
    message:
        "Sample a context of each task to draw"
    script:
        "../scripts/illustration.py"
