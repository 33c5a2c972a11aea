"""How routing documents of earlier schemas become today's.

Raising routing.policy_document.SCHEMA_VERSION to N comes with an entry N − 1 here.
"""

from __future__ import annotations

from routing.policy_document import SCHEMA_VERSION
from routing.schema_line import SchemaLine

ROUTING_SCHEMA = SchemaLine("routing policies", SCHEMA_VERSION, {})
