import pytest
import torch

from dragoman_model.checkpoint import load_model
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.recipe import TokenizerOptions
from dragoman_model.training.vocabulary import train_tokenizer
from tests.model.made_up import MANY_NAMES, made_up_pairs
from tests.models import TINY_VOCAB_SIZE, make_tiny_model

torch.set_num_threads(1)  # tiny tensors: threads would only fight over the cores


@pytest.fixture(scope="session")
def made_up_tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made-up")
    train_tokenizer(made_up_pairs(), TokenizerOptions(vocab_size=TINY_VOCAB_SIZE), directory, MANY_NAMES)
    return Tokenizer.load(directory)


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_model(tiny_directory):
    return load_model(tiny_directory, device="cpu")
