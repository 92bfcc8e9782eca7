"""Attention models: the literal reference, and the exact reductions that train."""
