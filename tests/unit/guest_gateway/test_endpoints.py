"""Which requests the LLM proxy takes."""
import pytest

from app.guest_gateway.llm.endpoints import find_endpoint
from services.errors import NotFound


@pytest.mark.parametrize("path", [
    "/models", "/v1/models", "/v1/models/gpt-4.1", "/models/..two", "/models/.a/b../org:x@1"])
def test_models_are_asked_for_by_their_names(path):
    assert find_endpoint("GET", path, is_anthropic=False).path == path.removeprefix("/v1")


@pytest.mark.parametrize("path", [
    "/v1/models/..", "/models/.", "/models/...", "/models/../chat/completions",
    "/models/a/../../files", "/models/a/..", "/models/%2e%2e/files", "/models/.%2E/files",
    "/models/a%2f..%2f..", "/models//files", "/models/", "/models/a/b/c/d", "/models/..\n"])
def test_nothing_that_leads_elsewhere_is_passed_on(path):
    with pytest.raises(NotFound):
        find_endpoint("GET", path, is_anthropic=False)
