"""The database: tables, migrations, SQL statements, repositories and the embedded PostgreSQL; knows no Dagster."""
