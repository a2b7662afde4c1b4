"""Bodies of create, wake, extend and the list query."""
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from app.schemas.addresses import Bootstrap, GitUrl
from app.schemas.fields import (
    COMMAND_MAX,
    IDEMPOTENCY_KEY_MAX,
    Body,
    Environment,
    Flag,
    Numeral,
    Port,
    Ports,
    Text,
    Whole,
)
from models.states import SandboxKind, SandboxStatus
from services.sandboxes.create import CreateRequest, LaunchOptions

IDLE_TIMEOUT_MAX_S = 86_400
LIST_LIMIT_DEFAULT = 100
PRESETS = ("opencode", "pi", "codex", "claude", "lfg")


class CreateBody(Body):
    """Contract, Create body. Loads to `CreateRequest`."""

    ports = Ports(load_default=())
    env = Environment(load_default=dict)
    timeout = Whole(validate=validate.Range(1, IDLE_TIMEOUT_MAX_S))
    size = Text(high=32)
    vcpus = Whole()
    mem_mb = Whole(data_key="memMb")
    template_id = Text(data_key="templateId", high=128)
    template = Text(high=32)
    git_repository_url = GitUrl(data_key="gitRepositoryUrl")
    git_ref = Text(data_key="gitRef", high=256)
    preferred_model = Text(data_key="preferredModel", low=0, high=128, load_default="")
    skip_app_processes = Flag(data_key="skipAppProcesses")
    agent_server_source = Text(data_key="agentServerSource", high=COMMAND_MAX)
    agent_bootstrap = Bootstrap(data_key="agentBootstrap")
    idempotency_key = Text(data_key="idempotencyKey", low=0, high=IDEMPOTENCY_KEY_MAX)

    @validates_schema
    def _one_template(self, data: dict[str, Any], **_: Any) -> None:
        if "template" in data and "template_id" in data:
            raise ValidationError("template and templateId exclude each other")
        if "template" in data and data["template"] not in PRESETS:
            raise ValidationError(f"unknown preset; presets are {', '.join(PRESETS)}", "template")

    @validates_schema
    def _ref_of_a_repository(self, data: dict[str, Any], **_: Any) -> None:
        if "git_ref" in data and "git_repository_url" not in data:
            raise ValidationError("needs gitRepositoryUrl", "gitRef")

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> CreateRequest:
        own = {name: data.pop(name) for name in _CREATE_FIELDS if name in data}
        return CreateRequest(options=LaunchOptions(**data), **own)


_CREATE_FIELDS = ("size", "vcpus", "mem_mb", "template_id", "template", "idempotency_key")


class WakeBody(Body):
    """Optional body of wake."""

    ports = Ports(load_default=())
    readiness_port = Port(data_key="readinessPort", load_default=None)


class ExtendBody(Body):
    """Optional body of extend: a new idle timeout."""

    timeout = Whole(validate=validate.Range(1, IDLE_TIMEOUT_MAX_S), load_default=None)


class HibernateBody(Body):
    """Hibernate takes no fields; an empty object is welcome."""


class ListQuery(Body):
    """Query of the list: paging, and `status` and `kind` to ask for some only (our choice)."""

    limit = Numeral(validate=validate.Range(min=1), load_default=LIST_LIMIT_DEFAULT)
    offset = Numeral(load_default=0)
    status = fields.String(validate=validate.OneOf([status.value for status in SandboxStatus]),
                           load_default=None)
    kind = fields.String(validate=validate.OneOf([kind.value for kind in SandboxKind]),
                         load_default=None)
