"""Theoretical references: covariance polynomials (easy task) and the linear loss floor (difficult task)."""
