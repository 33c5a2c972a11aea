"""Who starts, stops and turns engines: one class per kind, behind actuator.Actuator."""
