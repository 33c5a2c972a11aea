"""`/api/v1/group_grants`."""

from __future__ import annotations

from controlplane.access.models.group_grant import GroupGrant
from controlplane.access.resources import GROUP_GRANTS
from controlplane.platform.api.listing import Listing, exact
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method


class GroupGrantShape(ResourceShape):
    """A role of everyone in a group of the sign-in provider."""

    class Meta:
        model = GroupGrant


GroupGrantChange = change_body(GroupGrant)


class _GroupGrants(Objects):
    resource = GROUP_GRANTS
    shape = GroupGrantShape


class GroupGrants(_GroupGrants, Creatable):
    """List roles of groups, or give a group a role."""

    says = by_method(GET="List roles of groups.", POST="Give a group a role.")
    bodies = by_method(POST=new_body(GroupGrant))
    listing = Listing(
        {"group": ("group", "pool")},
        "group",
        {"group": exact("group", "Name of the group."), "pool": exact("pool", "Id of the pool, or *.")},
    )


class OneGroupGrant(_GroupGrants, Changeable, Deletable):
    """One role of a group."""

    bodies = by_method(PUT=GroupGrantChange, PATCH=GroupGrantChange)
