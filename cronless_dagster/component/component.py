"""`cronless_dagster.CronlessComponent`, as `dg` finds it."""

# No `from __future__ import annotations`: pydantic reads the fields as classes.

from typing import Any

import dagster as dg
from pydantic import BaseModel, Field, RootModel, ValidationError
from pydantic.json_schema import JsonSchemaValue

from cronless_dagster.component.attributes import AnyJobType, Health, OptionalHealth, RabbitMQ, Sensor
from cronless_dagster.component.declaring import ComponentError, declare, imported
from cronless_dagster.component.fields import ADDRESSES, Address, Attributes, Schema, rendered
from cronless_dagster.definitions import build_definitions
from cronless_dagster.resources.rabbitmq import RabbitMQResource


class CronlessComponent(dg.Component, dg.Resolvable, Attributes):
    """Scheduled jobs: their job types, routes and limits, and the tick sensor.

    The schedules themselves are rows of a table, not part of this file.
    """

    job_types: list[AnyJobType] = Field(min_length=1, description="What scheduled jobs run.")
    sensor: Sensor = Field(default_factory=Sensor, description="The sensor that asks what is due.")
    database_url: Address = Field(
        default="",
        description=(
            "`{{ env.NAME }}` of the PostgreSQL that holds the jobs. Default: CRONLESS_DATABASE_URL, or the file that"
            " CRONLESS_DATABASE_URL_FILE names."
        ),
    )
    rabbitmq: RabbitMQ = Field(default_factory=RabbitMQ, description="The broker of the queue route.")
    health: OptionalHealth = Field(
        default_factory=Health,
        description=(
            "The asset `schedule_health` and its checks: true, a mapping of its limits, or false, as all but one must"
            " say where definitions are merged."
        ),
    )
    resources: dict[str, str] = Field(
        default_factory=dict,
        description=(
            "Resources that handlers use, by key: each the `package.module:name` of one. Ready-made job types make"
            " those that aren't given from the environment."
        ),
    )

    @classmethod
    def model(cls) -> type["Unread"]:
        """Return what Dagster reads the file into before templates are filled in."""
        return Unread

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> "CronlessComponent":
        """Return the component that a file describes.

        Raises:
            dagster.ResolutionException: A template can't be filled in, or a value can't be used; with its line.
        """
        try:
            return cls.model_validate(rendered(model.model_dump(), context))
        except ValidationError as error:
            raise _with_its_line(error, context, model) from None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets, Dagster jobs, sensors and resources of the declared job types.

        Raises:
            ComponentError: A module, function or Dagster job that is named isn't there.
        """
        sensor = self.sensor.given()
        return build_definitions(
            declare(self.job_types, autoloaded=context.defs_module_name),
            database_url=self.database_url or None,
            rabbitmq=RabbitMQResource(**self.rabbitmq.given())
            if "rabbitmq" in self.model_fields_set
            else None,
            health=self.health.given() if self.health else None,
            resources={key: imported("resource", where) for key, where in self.resources.items()},
            **{**sensor, "default_status": dg.DefaultSensorStatus(self.sensor.default_status)},
        )


class Unread(RootModel[dict[str, Any]]):
    """The attributes of a `defs.yaml` as they are written, to be read once their templates are filled in."""

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> JsonSchemaValue:
        """Return the schema that the file must keep."""
        return CronlessComponent.model_json_schema(schema_generator=Schema)


def _with_its_line(error: ValidationError, context: dg.ResolutionContext, model: BaseModel) -> Exception:
    """Return the first mistake of a file as one sentence below the lines where it is."""
    first = error.errors(include_url=False)[0]
    # The third part of a job type's place is which form of the union was meant.
    path = [part for place, part in enumerate(first["loc"]) if first["loc"][0] != "job_types" or place != 2]
    own = first.get("ctx", {}).get("error")
    if tuple(path) in ADDRESSES:
        # Without the lines, since there is a password in them.
        return ComponentError(f"{'.'.join(map(str, path))}: {own if own is not None else first['msg']}")
    for part in path:
        context = context.at_path(part)
    said = str(own) if own is not None else f"{first['msg']}, not {str(first['input'])[:80]!r}"
    return context.build_resolve_fn_exc([said], str(path[-1]), model)
