"""``dragoman status``."""

import click

from dragoman_client.commands.documents import print_json
from dragoman_client.commands.shared import shared, shared_options
from dragoman_client.results import ServingStatus

CHECK_TIMEOUT_SECONDS = 5.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@shared_options
def status(as_json: bool) -> int:
    """Says whether the server takes requests; exits 0 only when it does."""
    settings = shared()
    with settings.translator(timeout=min(settings.timeout, CHECK_TIMEOUT_SECONDS)) as translator:
        overall = translator.health()
        models = [(model, translator.health(model.name)) for model in translator.models().models]
    serving = overall is ServingStatus.SERVING
    if as_json:
        print_json(
            {
                "server": settings.server,
                "status": overall.name,
                "models": [{"name": model.name, "status": health.name} for model, health in models],
            }
        )
    else:
        click.echo(f"{settings.server}  {overall.name}")
        for model, health in models:
            click.echo(f"  {model.name}  {health.name}")
    return 0 if serving else 1
