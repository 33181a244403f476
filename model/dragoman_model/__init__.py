"""The Transformer of dragoman: what makes one, and what decodes with one."""
