import subprocess
import sys


def test_client_and_its_commands_import_nothing_heavy() -> None:
    program = (
        "import sys, dragoman_client, dragoman_client.__main__\n"
        "heavy = ('torch', 'numpy', 'matplotlib', 'sentencepiece', 'safetensors', 'prometheus_client', 'dragoman_model',"
        " 'dragoman_server')\n"
        "print([name for name in heavy if name in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_environment()
    )

    assert result.stdout.strip() == "[]"


def test_everything_that_is_public_is_there() -> None:
    import dragoman_client

    assert all(hasattr(dragoman_client, name) for name in dragoman_client.__all__)
    assert list(dragoman_client.__all__) == sorted(dragoman_client.__all__)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
