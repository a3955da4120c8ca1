"""Whatever the API's own description allows, and much that it does not, is answered and never with a server's error."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from support.servers import PIPELINE, TOKEN, served

EXAMPLES = 3


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    """A server whose YAML may be edited."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        text = PIPELINE.replace("[plugins]", f"[{root}/plugins]")
        with served(text, root, path=tmp_path_factory.mktemp("openapi") / "pipeline.yaml") as api_server:
            api_server.running("street")
            yield api_server


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_dict(server.open.get("/openapi.json").json(), config=SchemathesisConfig())


def calls(api, server):
    operations = [operation.ok() for operation in api.get_all_operations()]
    # which do not end
    return [operation for operation in operations if not operation.path.endswith((".mjpg", "/stream"))]


# the pipeline's own threads use `random` meanwhile, which Hypothesis takes for the strategies' doing
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_no_generated_request_causes_a_server_error(api, server):
    checks = [not_a_server_error, status_code_conformance, content_type_conformance]
    operations = calls(api, server)
    assert len(operations) > 15
    for operation in operations:

        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @examples_of(operation)
        def check(case):
            answer = case.call(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
            case.validate_response(answer, checks=checks)

        check()
    assert server.open.get("/live").status_code == 200


def examples_of(operation):
    from hypothesis import given

    return given(case=operation.as_strategy())
