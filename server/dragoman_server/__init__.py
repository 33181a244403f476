"""gRPC in front of an engine: policy, no tensors."""
