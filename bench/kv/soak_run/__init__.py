"""What the soak of node managers consists of: nodes, clients, faults, and the checks of their history."""
