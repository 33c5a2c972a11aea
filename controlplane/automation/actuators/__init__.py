"""Who starts, stops and turns engines: one file per kind, behind actuator.Actuator."""
