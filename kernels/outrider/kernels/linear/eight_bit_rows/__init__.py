"""Rows rounded to eight-bit floats, for weights that are multiplied so."""
