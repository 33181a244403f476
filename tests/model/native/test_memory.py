import torch

from dragoman_model.native.memory import WeightMemory


def test_tensors_of_all_sizes_stand_apart_each_on_a_line_of_its_own_and_outlive_the_memory_itself():
    memory = WeightMemory()
    shapes = [(3, 5), (7,), (2**21, 5), (64, 64), (1,)]  # the third is more than a block
    tensors = [memory.empty(shape, dtype) for shape in shapes for dtype in (torch.int8, torch.float32)]
    del memory
    for index, tensor in enumerate(tensors):
        tensor.fill_(index)
    for index, (tensor, shape) in enumerate(zip(tensors, [shape for shape in shapes for _ in range(2)])):
        assert tensor.shape == shape
        assert tensor.data_ptr() % 64 == 0
        assert (tensor == index).all()
