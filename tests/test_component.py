"""The Dagster component: what a `defs.yaml` means, and what is said of one that can't be used."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from cronless_dagster import CronlessComponent, JobType, JobTypes, Limits, RetryPolicy
from cronless_dagster.component import attributes
from cronless_dagster.component.declaring import ComponentError, declare
from cronless_dagster.resources.database import CronlessResource
from cronless_dagster.resources.rabbitmq import RabbitMQResource

MODULE = "made_up_project"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of a made-up project, with what a file may name."""
    module = ModuleType(MODULE)

    def renew(job: Any) -> None:
        """Renew it."""

    def score(jobs: Any) -> dict[Any, Any]:
        return {}

    @dg.op
    def report_op() -> None:
        """Report."""

    @dg.job
    def report() -> None:
        report_op()

    declared = JobTypes()
    declared.job("digest", route="queue")(renew)
    vars(module).update(
        renew=renew, score=score, report=report, job_types=declared, other=declared, mailer="a mailer"
    )
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


def component(**given: Any) -> CronlessComponent:
    """Return a component from attributes as they are written in a file."""
    return CronlessComponent.from_attributes_dict(attributes=given)


def declared(*entries: dict[str, Any]) -> JobTypes:
    """Return the job types that entries declare."""
    return declare(component(job_types=list(entries)).job_types, autoloaded="made_up_project.defs")


def definitions(**given: Any) -> dg.Definitions:
    """Return the definitions that a file gives."""
    made = component(**given)
    return made.build_defs(dg.ComponentTree.for_test().load_context)


def loaded(text: str) -> CronlessComponent:
    """Return the component of a real file in a real defs folder."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=CronlessComponent, defs_yaml_contents=yaml.safe_load(text)
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (made, _):
            assert isinstance(made, CronlessComponent)
            return made


HANDLER = {"name": "renewal", "handler": f"{MODULE}:renew"}


class TestHandler:
    """An entry with a handler of the project."""

    def test_what_is_left_out_is_a_job_types_own_default(self, project: ModuleType) -> None:
        """A file and Python mean the same; the description is the function's."""
        [made] = declared(HANDLER)
        assert made == JobType(name="renewal", handler=project.renew, description="Renew it.")

    def test_everything_can_be_said(self, project: ModuleType) -> None:
        """Each option arrives, durations readable or in seconds."""
        [made] = declared(
            {
                "name": "scoring",
                "handler": f"{MODULE}:score",
                "takes": "batch",
                "batch_size": 20,
                "claims_per_tick": 2,
                "concurrency": 3,
                "lease": "1h30m",
                "retry": {"max_attempts": 7, "delay": 90, "max_delay": "2h", "factor": 1.5, "pause_after": 4},
                "limits": {"open_claims": 5, "in_flight": 600, "per_tenant": 7},
                "priority": 8,
                "max_runtime": None,
                "pool": "database",
                "tags": {"team": "sales"},
                "resources": ["warehouse"],
                "description": "Score leads.",
            }
        )
        assert made == JobType(
            name="scoring",
            handler=project.score,
            takes="batch",
            batch_size=20,
            claims_per_tick=2,
            concurrency=3,
            lease=timedelta(minutes=90),
            retry=RetryPolicy(7, timedelta(seconds=90), timedelta(hours=2), 1.5, 4),
            limits=Limits(5, 600, 7),
            priority=8,
            max_runtime=None,
            pool="database",
            tags={"team": "sales"},
            resources=("warehouse",),
            description="Score leads.",
        )

    def test_a_limit_leaves_the_routes_own_in_place(self) -> None:
        """Bounding a tenant doesn't narrow the queue to three claims."""
        [made] = declared({**HANDLER, "route": "queue", "limits": {"per_tenant": 5}})
        assert made.limits == Limits(open_claims=200, per_tenant=5)

    def test_null_lifts_a_limit(self) -> None:
        """As None does in Python."""
        [made] = declared({**HANDLER, "limits": {"open_claims": None}})
        assert made.limits == Limits(open_claims=None)

    def test_defaults_in_the_schema_are_those_of_the_job_type(self) -> None:
        """What `dg` shows as a default is one."""
        for model, owner in ((attributes.Handler, JobType), (attributes.Retry, RetryPolicy)):
            own = {field.name: field.default for field in fields(owner)}
            for name, field in model.model_fields.items():
                if field.default_factory is None and not field.is_required():
                    assert field.default == own[name], name


class TestModule:
    """An entry that takes over what a module declares."""

    @pytest.mark.parametrize("named", [MODULE, f"{MODULE}:other"])
    def test_it_is_the_modules_own(self, project: ModuleType, named: str) -> None:
        """By the usual name, or another one."""
        assert list(declared({"module": named})) == list(project.job_types)


class TestDagsterJob:
    """An entry for a Dagster job of the project."""

    def test_it_is_declared_as_in_python(self, project: ModuleType) -> None:
        """With its partition, and options of its runs."""
        [made] = declared(
            {
                "name": "report",
                "dagster_job": f"{MODULE}:report",
                "partition": "tenant_id",
                "limits": {"per_tenant": 1},
                "priority": 3,
            }
        )
        assert made.dagster_job is not None
        assert made.dagster_job.definition is project.report
        assert (made.batch_size, made.priority, made.limits) == (1, 3, Limits(100, None, 1))

    def test_one_that_dagster_loads_by_itself_is_refused(self) -> None:
        """Dagster would have two jobs of one name, and say so without a word about this file."""
        with pytest.raises(ComponentError, match=r"job_types\[0\]: .*'made_up_project.defs.x:job'.*move it"):
            declared({"name": "report", "dagster_job": "made_up_project.defs.x:job"})


class TestReadyMade:
    """An entry for a job type that comes with the package."""

    @pytest.mark.parametrize("name", ["account_research", "email_digest", "webhook_renewal"])
    def test_each_is_there(self, name: str) -> None:
        """Under its own name, with what the file changes."""
        [made] = declared({"ready_made": name, "limits": {"per_tenant": 9}, "lease": "2m"})
        assert (made.name, made.lease) == (name, timedelta(minutes=2))
        assert made.limits is not None
        assert made.limits.per_tenant == 9

    def test_a_code_location_of_all_three_loads(self) -> None:
        """With the resources that they use, made from the environment."""
        names = ("account_research", "email_digest", "webhook_renewal")
        made = definitions(job_types=[{"ready_made": name} for name in names], health=False)
        dg.Definitions.validate_loadable(made)
        assert {"fetcher", "mailer"} <= set(made.resources or {})

    def test_the_route_is_the_functions_affair(self) -> None:
        """Digests can take either."""
        [made] = declared({"ready_made": "email_digest", "route": "queue"})
        assert made.route == "queue"

    def test_its_own_options_reach_its_function(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What YAML has no form for becomes what the parameter says it is."""
        seen: dict[str, Any] = {}

        def account_research(*, files_home: Path, stale: timedelta, weeks: int, **options: Any) -> JobType:
            seen.update(files_home=files_home, stale=stale, weeks=weeks, options=options)
            return JobType(name="account_research", handler=print)

        module = ModuleType("research")
        module.account_research = account_research  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cronless_dagster.assets.research", module)
        declared(
            {"ready_made": "account_research", "options": {"files_home": "/data", "stale": "2d", "weeks": 3}}
        )
        assert seen == {"files_home": Path("/data"), "stale": timedelta(days=2), "weeks": 3, "options": {}}

    def test_what_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With what installs it: only these job types need it."""
        ours = ("cronless_dagster.assets.research", "cronless_dagster.assets.fetching")
        for module in [name for name in sys.modules if name.startswith(ours)]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "httpcore", None)
        with pytest.raises(
            ComponentError,
            match=r"'account_research' needs 'httpcore'.*install cronless-dagster\[assets\]",
        ):
            declared({"ready_made": "account_research"})

    def test_a_misspelt_option_is_named(self) -> None:
        """With those that there are."""
        with pytest.raises(ComponentError, match=r"account_research has no option 'wekes': it has .*weeks"):
            declared({"ready_made": "account_research", "options": {"wekes": 3}})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"module": "no_such_project.jobs"}, "module 'no_such_project.jobs' can't be imported"),
        ({"module": f"{MODULE}:mailer"}, r"gives no JobTypes but str: write `job_types = JobTypes\(\)`"),
        (
            {"name": "x", "handler": f"{MODULE}:renwe"},
            "has no 'renwe', which handler 'made_up_project:renwe' names",
        ),
        ({"name": "x", "handler": f"{MODULE}:mailer"}, "has the handler 'a mailer': give a function"),
        (
            {"name": "x", "dagster_job": f"{MODULE}:mailer"},
            "is given str: give what define_asset_job or @job",
        ),
        ({**HANDLER, "takes": "batch", "route": "queue"}, "takes a batch on the queue route"),
        ({**HANDLER, "lease": "2s"}, "at least 5 seconds"),
        ({"module": MODULE}, "'digest' is declared twice"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_entry(entry: dict[str, Any], said: str) -> None:
    """One sentence with the file's own words."""
    with pytest.raises(ComponentError, match=rf"job_types\[1\]: .*{said}"):
        declared({"module": MODULE}, entry)


def test_a_module_that_fails_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake is in the project's own code, so its place is needed."""
    (tmp_path / "fails_at_once.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ComponentError, match="ZeroDivisionError: division by zero") as raised:
        declared({"module": "fails_at_once"})
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


class TestDefinitions:
    """What a file gives to Dagster."""

    def test_the_sensor_is_as_the_file_says(self) -> None:
        """Name, interval, status, shards."""
        made = definitions(
            job_types=[HANDLER],
            sensor={"name": "ours", "minimum_interval_seconds": 30, "shards": 2, "default_status": "STOPPED"},
            health=False,
        )
        sensors = list(made.sensors or [])
        assert [sensor.name for sensor in sensors] == ["ours_0_of_2", "ours_1_of_2"]
        assert {sensor.minimum_interval_seconds for sensor in sensors} == {30}
        assert {sensor.default_status for sensor in sensors} == {dg.DefaultSensorStatus.STOPPED}

    def test_addresses_stay_names_of_variables(self) -> None:
        """Dagster's UI shows the name, and the address is read where it is used."""
        made = definitions(
            job_types=[{**HANDLER, "route": "queue"}],
            database_url="{{ env.OUR_DATABASE }}",
            rabbitmq={"url": "{{env.OUR_BROKER}}", "prefix": "ours"},
        )
        assert made.resources is not None
        assert made.resources["cronless"] == CronlessResource(database_url=dg.EnvVar("OUR_DATABASE"))
        assert made.resources["rabbitmq"] == RabbitMQResource(url=dg.EnvVar("OUR_BROKER"), prefix="ours")

    def test_resources_are_those_that_the_file_names(self) -> None:
        """For handlers, and in place of what ready-made job types would make."""
        made = definitions(
            job_types=[{**HANDLER, "resources": ["mailer"]}], resources={"mailer": f"{MODULE}:mailer"}
        )
        assert made.resources is not None
        assert made.resources["mailer"] == "a mailer"

    def test_a_resource_that_is_not_there_is_named(self) -> None:
        """By its key's reference."""
        with pytest.raises(ComponentError, match="resource 'made_up_project:postman' names"):
            definitions(job_types=[HANDLER], resources={"mailer": f"{MODULE}:postman"})

    @pytest.mark.parametrize(
        ("said", "there"), [({}, True), ({"health": True}, True), ({"health": False}, False)]
    )
    def test_health_is_there_unless_it_is_refused(self, said: dict[str, Any], *, there: bool) -> None:
        """All but one must leave it out where definitions are merged."""
        keys = definitions(job_types=[HANDLER], **said).resolve_all_asset_keys()
        assert (dg.AssetKey("schedule_health") in keys) is there

    def test_limits_of_health_are_parameters_of_its_asset(self) -> None:
        """Both are called the same and have the same defaults."""
        from cronless_dagster.assets.health import build_health_asset

        parameters = inspect.signature(build_health_asset).parameters
        own = {name: one.default for name, one in parameters.items() if name != "resource_key"}
        assert {name: field.default for name, field in attributes.Health.model_fields.items()} == own
        definitions(job_types=[HANDLER], health={"lateness_limit": "3m"})


class TestTemplates:
    """`{{ … }}` in a file."""

    def test_numbers_durations_and_texts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Filled in before the file is read, so that a number may come from the environment."""
        monkeypatch.setenv("OUR_BATCH", "50")
        monkeypatch.setenv("OUR_LEASE", "20m")
        monkeypatch.setenv("OUR_TEAM", "7")
        made = loaded(
            f"""
            type: cronless_dagster.CronlessComponent
            attributes:
              job_types:
                - name: renewal
                  handler: {MODULE}:renew
                  batch_size: "{{{{ env.OUR_BATCH }}}}"
                  lease: "{{{{ env.OUR_LEASE }}}}"
                  tags: {{team: "{{{{ env.OUR_TEAM }}}}"}}
            """
        )
        [entry] = made.job_types
        assert isinstance(entry, attributes.Handler)
        assert (entry.batch_size, entry.lease) == (50, timedelta(minutes=20))
        assert entry.tags == {"team": "7"}

    def test_a_text_that_looks_like_a_number_stays_a_text(self) -> None:
        """Only what is a template is filled in."""
        assert component(job_types=[{**HANDLER, "tags": {"team": "7.10"}}]).job_types[0].tags == {
            "team": "7.10"
        }

    def test_a_mistake_is_told_with_its_line(self) -> None:
        """Also one that only the value shows."""
        with pytest.raises(Exception, match="Error while loading component") as raised:
            loaded(
                f"""
                type: cronless_dagster.CronlessComponent
                attributes:
                  job_types:
                    - name: renewal
                      handler: {MODULE}:renew
                      lease: 3m 1h
                """
            )
        told = str(raised.value.__cause__)
        assert "attributes.job_types.0.lease" in told
        assert "The duration '3m 1h' can't be read" in told

    @pytest.mark.parametrize(
        "address", ["postgresql://me:secret-word@host/db", "postgresql://me:{{ env.OURS }}@host/db"]
    )
    def test_a_password_is_refused_and_not_shown(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dagster's UI would show it; written out or filled in."""
        monkeypatch.setenv("OURS", "secret-word")
        with pytest.raises(ComponentError, match=r"^database_url: the address holds a password") as raised:
            component(job_types=[HANDLER], database_url=address)
        assert "secret-word" not in str(raised.value)

    def test_only_addresses_are_kept_as_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a run's own config calls url is filled in like everything else."""
        monkeypatch.setenv("OURS", "https://example.org")
        config = {"ops": {"report_op": {"config": {"url": "{{ env.OURS }}"}}}}
        made = component(
            job_types=[{"name": "report", "dagster_job": f"{MODULE}:report", "run_config": config}]
        )
        assert made.job_types[0].run_config["ops"]["report_op"]["config"] == {"url": "https://example.org"}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"database_url": ["secret-word"]}, r"^database_url: Input should be a valid string$"),
            (
                {"rabbitmq": {"url": {"at": "secret-word"}}},
                r"^rabbitmq\.url: Input should be a valid string$",
            ),
            ({"job_types": [{**HANDLER, "tags": {"url": ["x"]}}]}, "should be a valid string"),
        ],
    )
    def test_what_is_no_text_is_told(self, given: dict[str, Any], said: str) -> None:
        """In a sentence; of an address without the value."""
        with pytest.raises(Exception, match=said) as raised:
            component(**{"job_types": [HANDLER], **given})
        assert "secret-word" not in str(raised.value)
