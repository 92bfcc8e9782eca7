# One rule for each figure and table of the registry, under its own name.
for _artifact in ARTIFACTS.values():

    rule:
        name:
            _artifact.name
        input:
            **{argument: f"<results>/{path}" for argument, path in _artifact.inputs.items()},
        output:
            [
                report(
                    file,
                    caption="../report/caption.rst",
                    category=f"{_artifact.kind.capitalize()}s",
                    labels={"name": _artifact.title, "format": file.rpartition(".")[2]},
                )
                for file in artifact_files(_artifact)
            ],
        log:
            f"<logs>/artifacts/{_artifact.name}.log",
        localrule: True
        conda:
            "../../environment.yml"
        params:
            artifact=_artifact.name,
            caption=_artifact.caption,
            code=[code_hash(module) for module in artifact_modules(_artifact)],
        message:
            f"Draw {_artifact.title}"
        script:
            "../scripts/artifact.py"
