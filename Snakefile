# The study from spectra to figures: snakemake --profile local all
# Another study is an override of the default: snakemake --profile local all --configfile config/quick.yaml
from snakemake.utils import min_version

min_version("9.8")


configfile: "config/paper.yaml"


include: "workflow/rules/common.smk"


rule all:
    default_target: True
    input:
        TARGETS,
    localrule: True


# What can be drawn from the cubes that are there: nothing is trained.
rule figures:
    input:
        drawable,
    localrule: True


include: "workflow/rules/spectra.smk"
include: "workflow/rules/theory.smk"
include: "workflow/rules/illustration.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/measurements.smk"
include: "workflow/rules/cubes.smk"
include: "workflow/rules/fits.smk"
include: "workflow/rules/artifacts.smk"
include: "workflow/rules/products.smk"
