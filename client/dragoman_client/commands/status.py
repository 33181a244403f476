"""``dragoman status``."""

import click

from dragoman_client.commands.choices import json_option
from dragoman_client.commands.documents import print_json
from dragoman_client.commands.shared import Seconds, option, shared, shared_options
from dragoman_client.commands.watch import watch_metrics
from dragoman_client.errors import DragomanError
from dragoman_client.exposition import DEFAULT_URL
from dragoman_client.serving import Model, ServingStatus
from dragoman_client.translator import Translator

MAX_CHECK_SECONDS = 5.0


@click.command()
@option("--watch", is_flag=True, help="Show live figures until Ctrl-C.")
@option(
    "--http",
    "url",
    metavar="URL",
    default=DEFAULT_URL,
    help="The server's HTTP side, which --watch reads.",
)
@option(
    "--interval",
    metavar="SECONDS",
    type=Seconds(min=0.1, max=3600),
    default=1.0,
    help="Time between two refreshes of --watch.",
)
@option("--count", metavar="N", type=click.IntRange(min=1), help="Stop --watch after N refreshes.")
@json_option("Print one JSON object; with --watch one a refresh.")
@shared_options
def status(watch: bool, url: str, interval: float, count: int | None, as_json: bool) -> int:
    """Says whether the server takes requests; exits 0 only when it does."""
    if watch:
        watch_metrics(url, shared().console(), interval=interval, count=count, as_json=as_json)
        return 0
    if count is not None:
        raise click.UsageError("--count goes with --watch")
    settings = shared()
    with settings.translator(timeout=min(settings.timeout, MAX_CHECK_SECONDS)) as translator:
        overall = translator.health()
        models = [(model, translator.health(model.name)) for model in _models(translator, overall)]
    if as_json:
        print_json(
            {
                "server": settings.server,
                "status": overall.name,
                "models": [{"name": model.name, "status": health.name} for model, health in models],
            }
        )
    else:
        click.echo(f"{settings.server} is {overall.name}")
        width = max((len(model.name) for model, _ in models), default=0)
        for model, health in models:
            pairs = ", ".join(map(str, model.language_pairs))
            kernels = f" ({model.kernels})" if model.kernels else ""
            click.echo(
                f"  {model.name:{width}}  {health.name}  {pairs}  {model.precision} on {model.device}{kernels}"
            )
    return 0 if overall is ServingStatus.SERVING else 1


def _models(translator: Translator, overall: ServingStatus) -> tuple[Model, ...]:
    """Returns the served models; a server that goes away no longer lists them."""
    try:
        return translator.models().models
    except DragomanError:
        if overall is ServingStatus.SERVING:
            raise
        return ()
