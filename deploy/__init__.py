"""The parts that put Headway's decisions behind nginx, HAProxy, and Envoy; they import only its client."""
