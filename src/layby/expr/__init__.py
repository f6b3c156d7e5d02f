"""Scalar expressions evaluated on whole columns, MFP and finishing."""
