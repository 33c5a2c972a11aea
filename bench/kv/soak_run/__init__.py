"""The parts of the soak of node managers: nodes, clients, faults, and the checks of their history."""
