"""Settings: defaults, reading, refusals, secrets."""

from __future__ import annotations

import traceback
from dataclasses import fields
from pathlib import Path

import pytest

from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.settings import Settings, SettingsError, variable_of, without_password

SECRET = "postgresql://app:s3cr3t@db.example/cronless"
BROKER = "amqps://app:s3cr3t@mq.example/jobs"


def test_an_empty_environment_gives_the_defaults() -> None:
    """Nothing has to be set."""
    settings = Settings.from_env({"CRONLESS_HOME": "", "HOME": "/nowhere"})
    assert settings == Settings()
    assert settings.database_url is None
    assert settings.broker_url is None
    assert settings.broker_prefix == "cronless"
    assert settings.home == Path(".cronless")
    assert (settings.history_days, settings.tick_seconds, settings.statement_timeout_ms) == (30, 20, 15_000)
    assert settings.max_payload_bytes == 65_536


def test_every_setting_is_read_from_its_variable() -> None:
    """Each variable reaches its own field and no other."""
    values: dict[str, tuple[str, object]] = {
        "database_url": (SECRET, SECRET),
        "broker_url": (BROKER, BROKER),
        "broker_ca_file": ("/etc/mq/ca.pem", Path("/etc/mq/ca.pem")),
        "broker_cert_file": ("/etc/mq/cert.pem", Path("/etc/mq/cert.pem")),
        "broker_key_file": ("/etc/mq/key.pem", Path("/etc/mq/key.pem")),
        "broker_prefix": ("staging.jobs", "staging.jobs"),
        "smtp_url": ("smtp://me:key@mail.example:587", "smtp://me:key@mail.example:587"),
        "mail_from": ("News <news@example.org>", "News <news@example.org>"),
        "public_url": ("https://app.example/", "https://app.example"),
        "fetch_per_host": ("2", 2),
        "fetch_seconds": ("5", 5),
        "fetch_bytes": ("2000", 2_000),
        "fetch_networks": ("127.0.0.0/8, ::1", ("127.0.0.0/8", "::1/128")),
        "files_home": ("/srv/files", Path("/srv/files")),
        "job_types": ("app.jobs, app.more_jobs", ("app.jobs", "app.more_jobs")),
        "home": ("/var/lib/app", Path("/var/lib/app")),
        "dagster_url": ("https://dagster.example/", "https://dagster.example"),
        "dagster_api_url": ("http://webserver:3000/", "http://webserver:3000"),
        "dagster_token": ("s3cr3t", "s3cr3t"),
        "dagster_location": ("our jobs", "our jobs"),
        "checks": ("app.checks", ("app.checks",)),
        "api_bind": ("0.0.0.0:80", "0.0.0.0:80"),
        "api_private_bind": ("[::1]:0", "[::1]:0"),
        "api_access_file": ("/etc/cronless/access.toml", Path("/etc/cronless/access.toml")),
        "api_calls_per_second": ("10", 10),
        "api_body_bytes": ("0", 0),
        "metrics_bind": ("localhost:9464", "localhost:9464"),
        "trace_slow_ms": ("250", 250),
        "trace_error_status": ("429", 429),
        "history_days": ("7", 7),
        "tick_seconds": ("30", 30),
        "statement_timeout_ms": ("5000", 5_000),
        "max_payload_bytes": ("1024", 1_024),
        "sensor_timeout_seconds": ("120", 120),
    }
    assert values.keys() == {item.name for item in fields(Settings)}
    settings = Settings.from_env({variable_of(name): text for name, (text, _) in values.items()})
    assert {name: getattr(settings, name) for name in values} == {
        name: value for name, (_, value) in values.items()
    }


def test_every_setting_says_what_it_means() -> None:
    """A setting without a meaning can't be documented, and a number without a unit can't be used."""
    for item in fields(Settings):
        assert item.metadata["meaning"], item.name
        assert item.metadata["unit"] or not isinstance(item.default, int), item.name


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("CRONLESS_HISTORY_DAYS", "0"),
        ("CRONLESS_HISTORY_DAYS", "-1"),
        ("CRONLESS_HISTORY_DAYS", "a month"),
        ("CRONLESS_HISTORY_DAYS", "1_0"),
        ("CRONLESS_HISTORY_DAYS", "٣٠"),
        ("CRONLESS_HISTORY_DAYS", "9" * 5_000),
        ("CRONLESS_TICK_SECONDS", "1.5"),
        ("CRONLESS_DATABASE_URL", "mysql://app@db/cronless"),
        ("CRONLESS_DATABASE_URL", "postgresql://db.example"),
        ("CRONLESS_DATABASE_URL", "postgresql://db.example:port/cronless"),
        ("CRONLESS_DATABASE_URL", "postgresql://[db/cronless"),
        ("CRONLESS_BROKER_URL", "http://mq.example"),
        ("CRONLESS_BROKER_URL", "mq.example:5672"),
        ("CRONLESS_BROKER_URL", "amqp://"),
        ("CRONLESS_BROKER_CA_FILE", "a\0b"),
        ("CRONLESS_BROKER_PREFIX", "amq"),
        ("CRONLESS_BROKER_PREFIX", "amq.jobs"),
        ("CRONLESS_BROKER_PREFIX", "a b"),
        ("CRONLESS_BROKER_PREFIX", "a..b"),
        ("CRONLESS_BROKER_PREFIX", "a" * 101),
        ("CRONLESS_DAGSTER_URL", "localhost:3000"),
        ("CRONLESS_PUBLIC_URL", "http://[::1"),
        ("CRONLESS_JOB_TYPES", "app/jobs.py"),
        ("CRONLESS_API_BIND", "8088"),
        ("CRONLESS_API_BIND", "127.0.0.1"),
        ("CRONLESS_API_BIND", ":8088"),
        ("CRONLESS_API_BIND", "127.0.0.1:99999"),
        ("CRONLESS_API_BIND", "::1:8088"),
        ("CRONLESS_API_BIND", "me@127.0.0.1:8088"),
        ("CRONLESS_METRICS_BIND", "http://127.0.0.1:9464"),
        ("CRONLESS_DAGSTER_TOKEN", "a b"),
        ("CRONLESS_DAGSTER_LOCATION", "x" * 201),
        ("CRONLESS_HOME", "a\0b"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(variable: str, text: str) -> None:
    """The message says which variable is meant, in one line."""
    with pytest.raises(SettingsError, match=variable) as caught:
        Settings.from_env({variable: text})
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, CronlessError)


def test_a_statement_may_not_outlast_its_tick() -> None:
    """The two limits are checked against each other."""
    with pytest.raises(
        SettingsError, match=r"CRONLESS_STATEMENT_TIMEOUT_MS is 15000.*CRONLESS_TICK_SECONDS=10"
    ):
        Settings.from_env({"CRONLESS_TICK_SECONDS": "10"})


def test_a_tick_may_not_outlast_dagsters_patience() -> None:
    """A sensor that is cut off commits a claim whose hand-over is lost."""
    with pytest.raises(SettingsError, match="DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"):
        Settings.from_env({"CRONLESS_TICK_SECONDS": "50"})
    Settings.from_env({"CRONLESS_TICK_SECONDS": "50", "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": "90"})


def test_publishing_counts_only_where_a_broker_is_named() -> None:
    """A tick that has to reach a broker too lasts longer at worst."""
    environment = {"CRONLESS_TICK_SECONDS": "35"}
    assert Settings.from_env(environment).tick_seconds == 35
    with pytest.raises(SettingsError, match=r"A tick can last 65 s .* and 15 s to hand over to the broker"):
        Settings.from_env(environment | {"CRONLESS_BROKER_URL": BROKER})


def test_a_misspelt_name_is_refused() -> None:
    """A setting that silently isn't applied is worse than an error."""
    with pytest.raises(
        SettingsError, match="CRONLESS_DATABSE_URL is no setting: did you mean CRONLESS_DATABASE_URL"
    ):
        Settings.from_env({"CRONLESS_DATABSE_URL": SECRET})
    with pytest.raises(SettingsError, match="did you mean CRONLESS_BROKER_URL_FILE"):
        Settings.from_env({"CRONLESS_BROKER_URLFILE": "/run/secrets/mq"})
    Settings.from_env({"CRONLESS_SOMETHING_ELSE": "1", "CRONLESS_TEST_BROKER_URL": BROKER})


@pytest.mark.parametrize(
    ("name", "url"), [("database_url", SECRET), ("broker_url", BROKER)], ids=["database", "broker"]
)
class TestSecretFiles:
    """The two addresses hold passwords, and mounted secrets are files."""

    def test_the_address_can_come_from_a_file(self, name: str, url: str, tmp_path: Path) -> None:
        """Usually with a newline at the end."""
        file = tmp_path / "url"
        file.write_text(f"{url}\n")
        settings = Settings.from_env({f"{variable_of(name)}_FILE": str(file)})
        assert getattr(settings, name) == url

    def test_both_sources_at_once_are_refused(self, name: str, url: str, tmp_path: Path) -> None:
        """Nobody has to guess which of two addresses is used."""
        variable = variable_of(name)
        with pytest.raises(SettingsError, match=f"{variable} and {variable}_FILE are both set"):
            Settings.from_env({variable: url, f"{variable}_FILE": str(tmp_path / "url")})

    def test_a_missing_or_empty_file_is_named(self, name: str, url: str, tmp_path: Path) -> None:
        """The message names the file, not only the failure."""
        (tmp_path / "empty").touch()
        for file in ("missing", "empty"):
            with pytest.raises(SettingsError, match=file):
                Settings.from_env({f"{variable_of(name)}_FILE": str(tmp_path / file)})

    def test_a_bad_address_in_a_file_is_refused_by_the_files_variable(
        self, name: str, url: str, tmp_path: Path
    ) -> None:
        """What is wrong is in the file."""
        (tmp_path / "url").write_text("nowhere")
        with pytest.raises(SettingsError, match=f"{variable_of(name)}_FILE"):
            Settings.from_env({f"{variable_of(name)}_FILE": str(tmp_path / "url")})


class TestSecrets:
    """Settings and their errors end up in logs and tracebacks."""

    def test_no_representation_shows_the_password(self) -> None:
        """What isn't secret in the addresses stays readable."""
        settings = Settings(
            database_url=f"{SECRET}?sslmode=require&sslpassword=t0ps3cret",
            broker_url="amqp://a:s3cr3t@mq/jobs",
            dagster_token="s3cr3t",
        )
        for shown in (repr(settings), str(settings), f"{settings}"):
            assert "s3cr3t" not in shown
            assert "t0ps3cret" not in shown
            assert "app:***@db.example/cronless" in shown
            assert "amqp://a:***@mq/jobs" in shown

    def test_no_refusal_shows_the_password(self) -> None:
        """Nor do the errors about these addresses, whatever the password did to them."""
        texts = (
            "mysql://app:s3cr3t@db/cronless",
            "postgresql://app:s3cr3t@db:99999/cronless",
            "postgresql://app:s3cr3t/more@db/cronless",
            "amqpx://app:s3cr3t@mq/jobs",
            "app:s3cr3t@mq",
        )
        for variable in ("CRONLESS_DATABASE_URL", "CRONLESS_BROKER_URL"):
            for text in texts:
                with pytest.raises(SettingsError) as caught:
                    Settings.from_env({variable: text})
                assert "s3cr3t" not in "".join(traceback.format_exception(caught.value, limit=-1))

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            (SECRET, "postgresql://app:***@db.example/cronless"),
            ("postgresql://postgres:@/cronless?host=/run/pg&port=5432",) * 2,
            ("postgresql://app@db/cronless",) * 2,
            ("postgresql://a:b@c@db/cronless", "postgresql://a:***@db/cronless"),
        ],
    )
    def test_an_address_without_its_password_is_still_an_address(self, url: str, shown: str) -> None:
        """Everything but the password stays readable."""
        assert without_password(url) == shown
