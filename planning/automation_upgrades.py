"""How automation documents of earlier schemas become today's.

Raising planning.automation_document.SCHEMA_VERSION to N comes with an entry N − 1 here.
"""

from __future__ import annotations

from planning.automation_document import SCHEMA_VERSION
from routing.schema_line import SchemaLine

AUTOMATION_SCHEMA = SchemaLine("automation policies", SCHEMA_VERSION, {}, ("rebalance.max_replicas",))
