"""Does the database have the tables of this version?"""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory
from django.db.migrations.executor import MigrationExecutor

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.project.pre_release import remedy
from routing.values.counted import count


def look(_installation: Installation) -> list[Finding]:
    """Compare the migrations that were applied with those of this program."""
    try:
        executor = MigrationExecutor(connection)
        executor.loader.check_consistent_history(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return [problem(f"Cannot read the migrations: {type(error).__name__}.", "Fix the database connection first.")]
    except InconsistentMigrationHistory as error:
        return [problem(f"The migrations conflict: {error}", "Restore the database from its backup.")]
    if pre_release := remedy():
        return [problem("A pre-release version created the database.", pre_release)]
    unknown = set(executor.loader.applied_migrations) - set(executor.loader.graph.nodes)
    if unknown:
        app, name = min(unknown)
        return [
            problem(
                f"A newer release created the database: {app}.{name} is unknown here.",
                "Run the newer release, or restore a backup of this version.",
            )
        ]
    if waiting:
        text = f"{count(len(waiting), 'migration')} pending; the first is {waiting[0][0]}."
        return [warning(text, "Run `manage.py migrate`; `manage.py up` does so by itself.")]
    return [ok("All migrations are applied.")]
