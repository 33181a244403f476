"""The client of dragoman: a Python interface and the `dragoman` command line."""
