"""Draw the workflow from its rules: reads the graph that Snakemake writes, folds figures and tables, writes Mermaid."""

import re
import sys

from inverse_depth.artifacts import ARTIFACTS


def diagram(graph):
    """Fold a graph of rules.

    Parameters
    ----------
    graph : str
        What ``snakemake all --rulegraph mermaid-js`` prints.

    Returns
    -------
    str
        Mermaid: a node for each rule, but one for all figures and one for all tables, and none for the target ``all``.
    """
    rules = dict(re.findall(r"^\s*(\w+)\[(\w+)\]$", graph, re.MULTILINE))
    names = {node: f"{ARTIFACTS[rule].kind}s" if rule in ARTIFACTS else rule for node, rule in rules.items()}
    edges = re.findall(r"^\s*(\w+) --> (\w+)$", graph, re.MULTILINE)
    folded = sorted({(names[start], names[end]) for start, end in edges} - {("all", "all")})
    lines = [f"    {start} --> {end}" for start, end in folded if end != "all"]
    joined = {name for edge in folded if edge[1] != "all" for name in edge}
    alone = [f"    {name}" for name in sorted(set(names.values()) - joined - {"all"})]
    return "\n".join(["flowchart LR", *lines, *alone])


if __name__ == "__main__":
    print(diagram(sys.stdin.read()))
