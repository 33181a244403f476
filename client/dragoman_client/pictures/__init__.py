"""Attention as pictures and as files of numbers: a web page, a figure for a paper, numpy's archive."""
