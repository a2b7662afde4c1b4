"""Bodies of a deploy, a rollback and a variable, and what is shown of an app."""
from typing import Any

from marshmallow import post_load

from app.schemas import answers
from app.schemas.answers import Answer
from app.schemas.fields import Body, Flag, Most, Text, Whole
from app.schemas.launch_fields import SnapshotId
from models.states import DeployStatus
from services.deploys.apps.output import LINES, LINES_MOST
from services.deploys.apps.slugs import SLUG_MOST
from services.deploys.begin_run import DeployRequest
from services.deploys.variables import VALUE_BYTES_MOST

_ID_MOST = 256


class DeployBody(Body):
    """Contract, Deploy surface. Loads to `DeployRequest` and whether to answer at once."""

    snapshot_id = SnapshotId()
    slug = Text("The app's name, the first label of its address.", required=True, high=SLUG_MOST)
    run_id = Text("A name of yours for this deploy; it is echoed.", required=True, high=_ID_MOST)
    is_async = Flag("Answer as soon as the deploy is taken on, and not when it has ended.",
                    data_key="async", load_default=False)
    deploy_intent_id = Text("Echoed in the deploy's events as it is.", high=_ID_MOST)

    @post_load
    def _request(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"at_once": data.pop("is_async"), "request": DeployRequest(**data)}


class RollbackBody(Body):
    """Loads as `DeployBody` does, to `RollbackRequest`."""

    version = Whole("The version to bring back; without it, the one that was served before.", low=1)
    run_id = Text("A name of yours for this deploy; it is echoed.", required=True, high=_ID_MOST)
    is_async = Flag("Answer as soon as the deploy is taken on, and not when it has ended.",
                    data_key="async", load_default=False)
    deploy_intent_id = Text("Echoed in the deploy's events as it is.", high=_ID_MOST)

    @post_load
    def _split(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"at_once": data.pop("is_async"), "rollback": data}


class OutputQuery(Body):
    """How much of an app's output."""

    lines = Most("How many lines, from the end", LINES_MOST, load_default=LINES)


class VariableBody(Body):
    """The value of a variable."""

    value = Text(f"At most {VALUE_BYTES_MOST} bytes of UTF-8.", required=True, low=0,
                 high=VALUE_BYTES_MOST)
    secret = Flag("It is never shown again, and builds do not get it.", load_default=True)


class VariableAnswer(Answer):
    """A variable of an app; the value of a secret is not shown."""

    name = answers.Text()
    secret = answers.Flag()
    value = answers.Text(optional=True)
    updated_at = answers.Time()


class VariableListAnswer(Answer):
    """The variables of an app, by name."""

    variables = answers.Inner(VariableAnswer, many=True, read=answers.whole)


class DeployAnswer(Answer):
    """An app, and the deploy that was begun last."""

    slug = answers.Text()
    app_id = answers.Text("The same for all versions of the app.")
    url = answers.Text("Where it is served.")
    status = answers.one_of(DeployStatus, "`live` once a version is served.")
    version = answers.Count("The version that the last deploy makes.")
    serving_version = answers.Count("The version that is served.", null=True)
    static = answers.Flag("It is served as files, without a process of its own.", null=True)
    run_id = answers.Text()
    deploy_intent_id = answers.Text(null=True)
    restores_version = answers.Count("The version that the last deploy brings back, if any.",
                                     null=True)
    error = answers.Text("Why the last deploy failed.", null=True)
    created_at = answers.Time()
    updated_at = answers.Time()


class DeployListAnswer(Answer):
    """A page of the apps of an account, newest first."""

    deploys = answers.Inner(DeployAnswer, many=True, read="items")
    total = answers.Count()
    limit = answers.Count()
    offset = answers.Count()
