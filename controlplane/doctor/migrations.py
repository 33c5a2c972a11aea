"""Does the database have the tables of this version?"""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory
from django.db.migrations.executor import MigrationExecutor

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.pre_release import remedy
from routing.values.counted import count


def look(_installation: Installation) -> list[Finding]:
    """Compare the migrations that were applied with those of this program."""
    try:
        executor = MigrationExecutor(connection)
        executor.loader.check_consistent_history(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return [problem(f"The migrations cannot be read: {type(error).__name__}.", "Make the database answer first.")]
    except InconsistentMigrationHistory as error:
        return [problem(f"The migrations contradict each other: {error}", "Restore the database from its backup.")]
    if pre_release := remedy():
        return [problem("The database was made by a pre-release version.", pre_release)]
    unknown = set(executor.loader.applied_migrations) - set(executor.loader.graph.nodes)
    if unknown:
        app, name = min(unknown)
        return [
            problem(
                f"The database was made by a newer program: {app}.{name} is unknown here.",
                "Run the newer program, or restore a backup of this version.",
            )
        ]
    if waiting:
        text = f"{count(len(waiting), 'migration')} to apply, the first is {waiting[0][0]}."
        return [warning(text, "Run `manage.py migrate`; `manage.py up` does so by itself.")]
    return [ok("The database has all tables of this version.")]
