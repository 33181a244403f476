"""The int8 kernels in C, built where a compiler is."""
