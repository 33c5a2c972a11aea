"""A person: Django's account with a revision, and with how the console shows times and colors to them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, ModelField, TextList, declared
from controlplane.platform.revisions import RevisedModel
from controlplane.platform.role import ALL_POOLS

MAX_ROLES = 3000
MAX_ROLE = 100
_HIDDEN = ("password", "last_login", "first_name", "last_name", "email", "is_staff", "date_joined")


class Clock(models.TextChoices):
    """How the time of day is written."""

    HOURS_24 = "24", "24 hours, 15:04"
    HOURS_12 = "12", "12 hours, 3:04 pm"


class Theme(models.TextChoices):
    """Colors of the console."""

    SYSTEM = "", "As the system"
    DARK = "dark", "Dark"
    LIGHT = "light", "Light"


class Person(User, RevisedModel):
    """A person who may sign in to the console."""

    public_id_field = "username"

    user_ptr = declared(
        # Blank: a new person gets it when the account is stored.
        models.OneToOneField(
            User, on_delete=models.CASCADE, parent_link=True, primary_key=True, blank=True, related_name="person"
        ),
        "Account",
        access=FieldAccess.HIDDEN,
    )
    time_zone = declared(
        models.CharField(max_length=64, blank=True, default=""),
        "Time zone",
        "Zone of all times on pages. Fields for times, and the API, use UTC.",
        access=FieldAccess.HIDDEN,
    )
    clock = declared(
        models.CharField(max_length=2, choices=Clock.choices, default=Clock.HOURS_24),
        "Clock",
        access=FieldAccess.HIDDEN,
    )
    theme = declared(
        models.CharField(max_length=5, choices=Theme.choices, blank=True, default=Theme.SYSTEM),
        "Theme",
        "The button at the top switches this browser alone.",
        access=FieldAccess.HIDDEN,
    )

    computed_fields: ClassVar[tuple[ModelField, ...]] = (
        declared(
            models.JSONField(name="roles", default=list, blank=True),
            "Roles",
            "Admins need all pools. The API and files write each as pool=role, such as chat=operator; * is all pools.",
            items=TextList(MAX_ROLES, length=MAX_ROLE, ticked=True),
        ),
        declared(
            models.JSONField(name="group_roles", default=list, blank=True),
            "Roles of groups",
            "Each as pool=role, with the sign-in provider's group that gives it.",
            access=FieldAccess.DERIVED,
            items=TextList(MAX_ROLES, length=2 * MAX_ROLE),
        ),
    )

    class Meta:
        verbose_name = "person"

    @property
    def roles(self) -> list[str]:
        """Return the roles that an admin gave, each as pool=role."""
        return sorted(_where(grant) for grant in self.role_grants.all() if not grant.by_group)

    @property
    def group_roles(self) -> list[str]:
        """Return the roles of the sign-in provider's groups, each with its group."""
        return sorted(f"{_where(grant)} by {grant.by_group}" for grant in self.role_grants.all() if grant.by_group)

    @override
    def __str__(self) -> str:
        return self.username


def _where(grant: Any) -> str:
    return f"{grant.pool.slug if grant.pool else ALL_POOLS}={grant.role}"


def _of_account(name: str, title: str = "", help: str = "", access: FieldAccess = FieldAccess.HIDDEN) -> None:
    """Declare a field of Django's account, which a person inherits."""
    field: ModelField = User._meta.get_field(name)
    declared(field, title, help, access=access)


_of_account("username", "Name", "Letters, digits, and @ . + - _; it never changes.", FieldAccess.FIXED)
_of_account("is_active", "Active", "An inactive person cannot sign in, and has no session.", FieldAccess.SET)
_of_account("is_superuser", "Superuser", access=FieldAccess.DERIVED)
for _name in _HIDDEN:
    _of_account(_name)


def add_person(instance: User, created: bool, raw: bool, **_signal: Any) -> None:
    """Make a person of a new account that Django or the sign-in provider has added."""
    if created and not raw:
        Person(user_ptr=instance).save_base(raw=True)
