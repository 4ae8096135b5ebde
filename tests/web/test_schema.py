"""Requests that are made up from the OpenAPI: whatever is sent, the answer is one that it announces."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from httpx import Client
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from web.serving import until, upload

_EXAMPLES = 12  # of each call, of each kind
_FINAL = {("DELETE", "/api/clips/{clip_id}"), ("POST", "/api/clips/{clip_id}/cancel")}


@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_no_request_surprises_the_server(client: Client, clip: Path, kind: str) -> None:
    """Of calls about a clip half are about one that there is."""
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(client.get("/api/openapi.json").json())
    clip_id = upload(client, clip)
    until(client, clip_id, "ready")
    hit_id = client.get("/api/search", params={"query": "a square"}).json()["hits"][0]["id"]
    statuses = set()
    called = 0

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        is_final = (operation.method.upper(), operation.path) in _FINAL
        known = {} if is_final else {"{clip_id}": ("clip_id", clip_id), "{hit_id}": ("hit_id", hit_id)}
        parameters = dict(value for name, value in known.items() if name in operation.path)
        for given_parameters in [None, parameters] if parameters else [None]:
            strategy = operation.as_strategy(
                generation_mode=GenerationMode(kind), path_parameters=given_parameters
            )

            @given(case=strategy)
            @settings(
                max_examples=_EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def check(case: schemathesis.Case[Any]) -> None:
                nonlocal called
                answer = case.call(base_url=str(client.base_url))
                called += 1
                statuses.add(answer.status_code)
                case.validate_response(answer, checks=checks)

            with suppress(Unsatisfiable):  # a call that takes nothing cannot be given anything wrong
                check()
    assert called > 100
    assert (200 if kind == "positive" else 422) in statuses
    assert client.get("/api/status").status_code == 200
