"""The Regions page: where requests arrive, where they are served, and how the regions' gateways reach each other."""
