"""What puts Switchyard's decisions behind nginx, HAProxy and Envoy. Imports nothing of Switchyard but its client."""
