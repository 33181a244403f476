"""The wire contract of dragoman; its versions are the packages inside."""
