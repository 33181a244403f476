"""One module an RPC; what several share stands in `work`."""
