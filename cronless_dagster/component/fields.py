"""What the fields of `defs.yaml` have in common: readable durations, templates, addresses without passwords."""

# No `from __future__ import annotations`: pydantic reads these as classes.

import re
from datetime import timedelta
from typing import Annotated, Any

import dagster as dg
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from cronless_dagster.scheduling.durations import format_duration, parse_duration
from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.settings import without_password

_TEMPLATE = r"\{\{.*\}\}"
# These are shown where a value doesn't keep them, so they are as simple as can be: what still can't be read is refused
# with a sentence when the file is loaded.
_DURATION = rf"^([0-9]+[wdhms] ?)+$|{_TEMPLATE}"
_WHOLE = rf"^[0-9]+$|{_TEMPLATE}"
_DECIMAL = rf"^[0-9.]+$|{_TEMPLATE}"
_VARIABLE = re.compile(r"\s*\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}\s*")
ADDRESSES = frozenset({("database_url",), ("rabbitmq", "url")})
"""Places of addresses, which may hold a password: of a template there only the variable's name is kept."""


class Attributes(dg.Model):
    """A mapping of `defs.yaml`: unknown keys are refused."""

    # What a template gives is a number wherever it looks like one.
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    def given(self) -> dict[str, Any]:
        """Return what the file says, leaving out what it leaves to the defaults."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }


class Schema(GenerateJsonSchema):
    """The JSON schema that `dg check yaml` compares a file with.

    Each number may be a template as well. A type and "nothing" are written as one list of types, since a mistake
    within an `anyOf` is reported without its place.
    """

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Return the schema of a whole number or a template."""
        return {**super().int_schema(schema), "type": ["integer", "string"], "pattern": _WHOLE}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number or a template."""
        return {**super().float_schema(schema), "type": ["number", "string"], "pattern": _DECIMAL}

    def encode_default(self, dft: Any) -> Any:
        """Return a default as one writes it."""
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema of something that may be left empty."""
        inner = self.generate_inner(schema["schema"])
        if "type" not in inner:
            return inner
        types = inner["type"] if isinstance(inner["type"], list) else [inner["type"]]
        return {**inner, "type": [*types, "null"]}


class ByKey:
    """Annotates a union of mappings that are told apart by a key that only one of them has.

    Its schema asks for the key first, so that a mistake is reported within the mapping that was meant, at its line.
    """

    def __init__(self, *keys: str) -> None:
        """Take the key of each but the last, which is meant where there is none of the keys."""
        self.keys = keys

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return nested conditions, the last of the union at their end."""
        choices: list[JsonSchemaValue] = handler(schema)["oneOf"]
        chain = choices.pop()
        for key, choice in zip(reversed(self.keys), reversed(choices), strict=True):
            chain = {"if": {"type": "object", "required": [key]}, "then": choice, "else": chain}
        return chain

    def key_of(self, value: Any) -> str:
        """Return the key that tells what is meant by a mapping or a model, "" for the last of the union."""
        keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
        return next((key for key in self.keys if key in keys), "")


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_duration(value, what="duration")
        except ScheduleError as error:
            raise ValueError(str(error)) from None
    return timedelta(seconds=value) if isinstance(value, int | float) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema({"type": ["string", "number"], "pattern": _DURATION}),
]
"""`15m`, `1h30m`, or a number of seconds."""


def _address(value: str) -> str:
    variable = _VARIABLE.fullmatch(value)
    if variable:
        return dg.EnvVar(variable[1])
    if "***" in without_password(value):
        raise ValueError(
            "the address holds a password, which Dagster's UI would show: put the whole address into an environment"
            " variable and write '{{ env.ITS_NAME }}'"
        )
    return value


Address = Annotated[str, AfterValidator(_address)]
"""An address without a password, or `{{ env.NAME }}` for one that is read where it is used."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
"""A name as Dagster takes it."""


def rendered(value: Any, context: dg.ResolutionContext, place: tuple[str | int, ...] = ()) -> Any:
    """Return a value of the file with its templates filled in; `place` is where in the file it stands.

    Raises:
        dagster.ResolutionException: A template can't be filled in; its message shows the line.
    """
    if isinstance(value, dict):
        return {
            key: inner
            if (*place, key) in ADDRESSES and isinstance(inner, str) and _VARIABLE.fullmatch(inner)
            else rendered(inner, context.at_path(key), (*place, key))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            rendered(inner, context.at_path(number), (*place, number)) for number, inner in enumerate(value)
        ]
    # Rendering would also turn a text such as "5" into a number.
    return context.resolve_value(value) if isinstance(value, str) and "{{" in value else value
