"""The ``dragoman-model`` command line: one module a command."""
