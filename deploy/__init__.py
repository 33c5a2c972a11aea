"""What puts Headway's decisions behind nginx, HAProxy and Envoy. Imports nothing of Headway but its client."""
