"""People, tenants, API keys, and groups' grants as resources. An actor who may see one of them may see all."""

from __future__ import annotations

from controlplane.access.api_keys import change_api_key, create_api_key
from controlplane.access.group_grants import change_grant, create_grant, delete_grant
from controlplane.access.models.group_grant import GroupGrant
from controlplane.access.models.person import Person
from controlplane.access.people import change_person, create_person
from controlplane.fleet import topology
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role

TENANTS = Resource(
    "tenants",
    Tenant,
    lambda _actor: Tenant.objects.all(),
    created=topology.create_tenant,
    changed=topology.change_tenant,
    deleted=topology.delete_tenant,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
GROUP_GRANTS = Resource(
    "group_grants",
    GroupGrant,
    lambda _actor: GroupGrant.objects.all(),
    created=create_grant,
    changed=change_grant,
    deleted=delete_grant,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
KEYS = Resource(
    "keys",
    ApiKey,
    lambda _actor: ApiKey.objects.select_related("tenant"),
    created=create_api_key,
    changed=change_api_key,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
PEOPLE = Resource(
    "people",
    Person,
    lambda _actor: Person.objects.prefetch_related("role_grants__pool"),
    created=create_person,
    changed=change_person,
    changes_need=Role.ADMIN,
    whole_fleet=True,
)
