"""One function per figure: Datasets and DataFrames in, a matplotlib Figure out."""
