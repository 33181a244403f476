"""The kernels in C, for int8 and float32, built where a compiler is."""
