import json
import re

from tests.client.command_line import Dragoman


def test_table_fits_a_terminal_and_says_what_a_request_takes(dragoman: Dragoman) -> None:
    lines = dragoman("models").lines

    assert re.split(r" {2,}", lines[1].strip()) == [
        *("en-de", "en → de", "7.4 M", "4 + 2", "4", "256", "float32", "cpu", "abababab"),
    ]
    assert lines[-3] == "Kernels of en-de: PyTorch."
    assert lines[-2] == "All calls share 64 rows of each model; 1,024 sentences may wait."
    assert lines[-1] == "One call takes 256 texts of 20,000 characters; beams up to 1."
    assert max(map(len, lines)) <= 80


def test_json_holds_models_and_limits(dragoman: Dragoman) -> None:
    [line] = dragoman("models", "--json").lines
    document = json.loads(line)

    assert document["models"][0]["name"] == "en-de"
    assert document["models"][0]["language_pairs"] == [{"source": "en", "target": "de"}]
    assert document["models"][0]["kernels"] == "PyTorch"
    assert document["limits"]["max_text_count"] == 256
    assert document["limits"]["max_batch_size"] == 64
    assert document["limits"]["max_queue_size"] == 1024


def test_missing_server_exits_1(dragoman: Dragoman) -> None:
    assert dragoman("models", "--server", "127.0.0.1:1").exit_code == 1
