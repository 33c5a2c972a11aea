"""Pages of incidents: the list, and one incident with its causes and the requests hit."""
