"""ListModels: what is served, and what one call may ask for."""

from __future__ import annotations

from dragoman.v1 import ListModelsRequest, ListModelsResponse
from dragoman_server.logs import current_call
from dragoman_server.messages import limits_message, model_message
from dragoman_server.rpcs.work import Backend


def list_models(backend: Backend, request: ListModelsRequest) -> ListModelsResponse:
    """Returns the served models, page by page where asked to."""
    current_call.get().model = ""
    models, next_page_token = backend.catalogue.page(request.page_size, request.page_token)
    return ListModelsResponse(
        models=[model_message(served.model, served.kernels) for served in models],
        next_page_token=next_page_token,
        limits=limits_message(backend.limits),
    )
