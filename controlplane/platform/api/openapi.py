"""The one OpenAPI document: the management API as its views declare it, and the gateway's part."""

from __future__ import annotations

from typing import Any

from drf_spectacular.generators import SchemaGenerator
from typing_extensions import override

from controlplane.platform.api.gateway_operations import gateway_part


class Generator(SchemaGenerator):
    """Generates the document from the addresses below /api/ and adds the gateway's."""

    @override
    def get_schema(self, request: Any = None, public: bool = True) -> dict[str, Any]:
        """Return the document."""
        document: dict[str, Any] = super().get_schema(request=None, public=True)
        paths, schemas = gateway_part()
        document["paths"] = dict(sorted({**document["paths"], **paths}.items()))
        components = document["components"]["schemas"]
        clashes = components.keys() & schemas.keys()
        if clashes:
            raise ValueError(f"two schemas share a name: {', '.join(sorted(clashes))}")
        document["components"]["schemas"] = dict(sorted({**components, **schemas}.items()))
        return document


def openapi_document() -> dict[str, Any]:
    """Return the whole document."""
    return Generator(patterns=None).get_schema()
